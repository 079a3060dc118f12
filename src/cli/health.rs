//! `publish-ingest health`: a health check that needs no other program.

use std::time::Duration;

use clap::Args;

use super::{Failure, running};

/// How long the answer may take: beyond what `/readyz` itself waits for the database.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

#[derive(Args)]
pub(super) struct Health {
    /// What to ask; without it, /readyz of the service that listens here
    url: Option<String>,

    /// Where the service listens
    #[arg(long, env = "PUBLISH_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    listen: std::net::SocketAddr,
}

impl Health {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let url = self.url.unwrap_or_else(|| format!("http://{}/readyz", running::reachable(self.listen)));
        let told = |why: String| Failure::Told(format!("{url} is not well: {why}"));
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_WITHIN).build();
        let client = client.map_err(|error| told(error.to_string()))?;
        let answer = client.get(&url).send().await.map_err(|error| told(error.without_url().to_string()))?;
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(told(format!("it answered {status}"))) }
    }
}
