//! The platform that is built in, with faults of its own. What it holds stands in the service's database, so an earlier copy
//! of that takes it back too.

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::{Holdings, Platform, note};

pub(crate) struct Sandbox {
    pub(crate) database_url: String,
}

impl Platform for Sandbox {
    fn name(&self) -> &'static str {
        "sandbox"
    }

    fn account(&self, _: &str) -> Value {
        let rule =
            |what: &str, step: &str| json!({"do": what, "step": step, "probability": 0.08, "times": 2});
        let behaviour = [
            rule("lose_answer", "draft"),
            rule("lose_answer", "publish"),
            rule("error_after_accepting", "draft"),
            rule("error_after_accepting", "publish"),
            rule("error", "find"),
        ];
        json!({"settings": {"behaviour": behaviour, "seed": 7}, "credentials": {}, "max_in_flight": 8})
    }

    fn refused(&self, _: &str) -> Option<Value> {
        let behaviour = json!({"do": "reject", "step": "publish"});
        Some(json!({"settings": {"behaviour": behaviour}, "credentials": {}}))
    }

    fn drafts(&self) -> bool {
        true
    }

    fn holdings(&self) -> Holdings {
        let articles = "SELECT title, coalesce(public_at <= now(), false) FROM sandbox_articles";
        let asked = async {
            let mut database = PgConnection::connect(&self.database_url).await.unwrap();
            sqlx::query_as::<_, (String, bool)>(articles).fetch_all(&mut database).await.unwrap()
        };
        let mut holdings = Holdings::new();
        for (title, public) in block_in_place(|| Handle::current().block_on(asked)) {
            note(&mut holdings, &title, public);
        }
        holdings
    }
}
