use super::*;

/// Keeps what it is given.
#[derive(Default)]
struct Shelf {
    images: Vec<Image>,
}

impl Uploader for &mut Shelf {
    type Error = String;

    async fn upload(&mut self, image: Image) -> Result<Placed, NotPlaced<String>> {
        tokio::task::yield_now().await;
        let url = format!("https://blog.example/{}", image.file_name());
        self.images.push(image);
        Ok(Placed { url, remote_id: Some(self.images.len().to_string()) })
    }
}

/// A connector's call must be able to move between threads, whatever its uploader borrows.
#[expect(dead_code, reason = "that it compiles is the test")]
fn a_transfer_can_be_sent<'a>(
    media: &'a Media,
    content: &'a Content,
    until: Instant,
    mut shelf: &'a mut Shelf,
) -> crate::connector::Answering<'a, Result<Transferred, TransferError<String>>> {
    let rules = Rules { cover: Images::Upload, body: Images::Upload, broken: Broken::Fail };
    Box::pin(async move { media.transfer(content, rules, until, &mut shelf).await })
}
