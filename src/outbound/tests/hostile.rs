//! The written list of what must not get through, sent by the client itself.

use super::super::address::hostile;
use super::*;

/// A resolver that answers every name with loopback, so that whatever comes to it is refused or dialled.
fn all_is_loopback() -> Lookup {
    names(&["127.0.0.1", "::1"])
}

#[tokio::test]
async fn no_hostile_url_is_sent() {
    let client = client_where(&[], all_is_loopback());
    for text in hostile::SPELLINGS {
        let error = post(&client, text, ROOMY).await.unwrap_err();
        assert!(matches!(error, CallError::Refused(_)) && error.proved_unsent(), "{text:?}: {error:?}");
    }
}

#[tokio::test]
async fn no_hostile_name_is_dialled_and_the_tenant_learns_no_address() {
    let (listener, url) = listener().await;
    let port = listener.local_addr().unwrap().port();
    drop(url);
    let calls = async {
        for (name, addresses) in hostile::NAMES {
            let client = client_where(&[], names(addresses));
            for spelling in [(*name).to_owned(), format!("{name}."), name.to_uppercase()] {
                let url = format!("http://{spelling}:{port}/");
                let error = post(&client, &url, ROOMY).await.unwrap_err();
                assert!(
                    matches!(error, CallError::Refused(Refusal::Resolved(_))) && error.proved_unsent(),
                    "{url}: {error:?}"
                );
                let told = error.to_string();
                assert!(told.contains("resolves to an address that is not public"), "{told}");
                assert!(addresses.iter().all(|ip| !told.contains(ip)) && !told.contains("RFC"), "{told}");
            }
        }
    };
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("a refused address was dialled"),
        () = calls => {}
    }
}
