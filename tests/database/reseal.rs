//! Another master key: every stored secret comes under it, while others write, and whenever it is ended and begun again.

use publish_ingest::account::{AccountInput, AccountKey, Credentials};
use publish_ingest::callback::signature::Scheme;
use publish_ingest::store::Resealed;
use publish_ingest::vault::{CannotOpen, MasterKey, MasterKeys, Vault};
use serde_json::json;

use crate::harness::{World, account_input, in_world};

/// A vault that seals under a new key and opens under the world's as well; and one that has the new key alone.
fn vaults(world: &World) -> (Vault, Vault) {
    let new = MasterKey::generate(&*world.clock);
    let both: MasterKeys = format!("{},{}", *new.expose(), *world.master_key.expose()).parse().unwrap();
    (Vault::new(&both), Vault::new(&new.into()))
}

async fn put(world: &World, id: &str, token: &str, vault: &Vault) {
    let credentials = Some(Credentials::new(json!({"token": token})));
    let input = AccountInput { credentials, ..account_input(id) };
    let key = AccountKey::new("static_site", id).unwrap();
    let terms = publish_ingest::store::Terms::NONE;
    world.store.put_account(world.tenant.tenant_id, &key, &input, vault, terms).await.unwrap();
}

async fn token(world: &World, id: &str, vault: &Vault) -> String {
    let key = AccountKey::new("static_site", id).unwrap();
    let stored = world.store.credentials(world.tenant.tenant_id, &key, vault).await.unwrap().unwrap();
    stored.text("token").unwrap().to_owned()
}

async fn left(world: &World, vault: &Vault) -> i64 {
    world.store.count_sealed(vault).await.unwrap().left
}

/// More accounts than are read at once.
const ACCOUNTS: usize = 120;

#[tokio::test]
async fn every_secret_comes_under_the_new_key_and_stays_what_it_was() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.another_tenant("beta").await;
        let schemes = [Scheme::V1, Scheme::V1a];
        world.store.set_signatures(tenant_id, &schemes, &world.vault).await.unwrap();
        for n in 0..ACCOUNTS {
            put(world, &format!("many{n}"), &format!("token{n}"), &world.vault).await;
        }
        let (both, new) = vaults(world);
        let all = i64::try_from(ACCOUNTS).unwrap() + 2 + 3;
        let counted = world.store.count_sealed(&both).await.unwrap();
        assert_eq!((counted.all, counted.unknown, counted.left), (all, 0, all));
        assert!(world.store.check_vault(&new).await.is_err() && world.store.check_vault(&both).await.is_ok());
        let unsealed =
            "SELECT md5(string_agg((to_jsonb(a) - 'credentials_sealed')::text, ',' ORDER BY tenant_id, account_id))
            FROM accounts a";
        let before = world.text(unsealed).await;
        let of = async |vault: &Vault| {
            let keys = world.store.signing_keys(tenant_id, vault).await.unwrap();
            keys.iter().map(|one| one.key.bytes().to_vec()).collect::<Vec<_>>()
        };
        let (keys, mark) = (of(&both).await, world.store.marker_key(tenant_id, &both).await.unwrap());

        // Ended after a few, and begun again.
        let few = world.store.sealed_before(tenant_id, &both).await.unwrap();
        assert_eq!(few.len(), 3);
        for one in &few {
            assert!(world.store.reseal_one(tenant_id, one, &both).await.unwrap());
        }
        assert_eq!(left(world, &both).await, all - 3);
        let mut told = Vec::new();
        let done = world.store.reseal(&both, |count| told.push(count)).await.unwrap();
        let rest = u64::try_from(all - 3).unwrap();
        assert_eq!(done, Resealed { resealed: rest, ..Resealed::default() });
        assert_eq!(told.last(), Some(&rest));
        assert_eq!(left(world, &both).await, 0);
        world.store.check_vault(&new).await.unwrap();
        assert_eq!(world.store.reseal(&both, |_| ()).await.unwrap(), Resealed::default());

        assert_eq!(of(&new).await, keys);
        let renewed = world.store.marker_key(tenant_id, &new).await.unwrap();
        assert_eq!(renewed.marker("a", "p", "b"), mark.marker("a", "p", "b"));
        for n in [0, ACCOUNTS - 1] {
            assert_eq!(token(world, &format!("many{n}"), &new).await, format!("token{n}"));
        }
        assert_eq!(world.text(unsealed).await, before);
    })
    .await;
}

#[tokio::test]
async fn what_is_written_meanwhile_is_not_overwritten() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let (both, new) = vaults(world);
        let read = world.store.sealed_before(tenant_id, &both).await.unwrap();
        assert_eq!(read.len(), 2);
        // As another process would: by the same key, the value anew.
        let changed = "UPDATE tenants SET marker_key_sealed = set_byte(marker_key_sealed, 40, 1)";
        world.execute(changed).await;
        world.execute("UPDATE signing_secrets SET sealed = set_byte(sealed, 40, 1)").await;
        let rows = "SELECT t.marker_key_sealed::text || s.sealed::text FROM tenants t JOIN signing_secrets s USING (tenant_id)";
        let written = world.text(rows).await;
        for one in &read {
            assert!(!world.store.reseal_one(tenant_id, one, &both).await.unwrap());
        }
        assert_eq!(world.text(rows).await, written);

        for id in ["blog1", "blog2"] {
            put(world, id, "first", &world.vault).await;
        }
        let read = world.store.sealed_credentials_before(tenant_id, ("", ""), &both).await.unwrap();
        put(world, "blog2", "second", &world.vault).await;
        let mut written = Vec::new();
        for one in &read {
            written.push(world.store.reseal_one(tenant_id, one, &both).await.unwrap());
        }
        assert_eq!(written, [true, false]);
        assert_eq!(token(world, "blog1", &new).await, "first");
        assert_eq!(token(world, "blog2", &both).await, "second");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_opened_is_named_and_stays_and_the_rest_is_done() {
    in_world(async |world: &World| {
        for id in ["blog1", "blog2"] {
            put(world, id, id, &world.vault).await;
        }
        let (both, new) = vaults(world);
        world
            .execute(
                "UPDATE accounts a SET credentials_sealed = b.credentials_sealed FROM accounts b
                WHERE a.account_id = 'blog1' AND b.account_id = 'blog2'",
            )
            .await;
        let done = world.store.reseal(&both, |_| ()).await.unwrap();
        assert_eq!(done.resealed, 3);
        let [one] = &done.not_opened[..] else { panic!("{done:?}") };
        assert_eq!((&*one.tenant, &*one.secret), ("acme", "the credentials of static_site/blog1"));
        assert_eq!(one.why, CannotOpen::Damaged);
        assert_eq!(left(world, &both).await, 1);
        put(world, "blog1", "anew", &both).await;
        assert_eq!(left(world, &both).await, 0);
        world.store.check_vault(&new).await.unwrap();
    })
    .await;
}

/// A column that a rotation would forget could not be opened any more when the old key is taken away.
#[tokio::test]
async fn these_are_all_columns_that_hold_something_sealed() {
    in_world(async |world: &World| {
        let sealed = "SELECT string_agg(table_name || '.' || column_name, ' ' ORDER BY table_name)
            FROM information_schema.columns WHERE table_schema = 'public' AND column_name LIKE '%sealed%'";
        assert_eq!(
            world.text(sealed).await,
            "accounts.credentials_sealed signing_secrets.sealed tenants.marker_key_sealed"
        );
    })
    .await;
}
