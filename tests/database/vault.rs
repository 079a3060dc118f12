//! The master key is held against every stored secret.

use publish_ingest::store::StoreError;
use publish_ingest::vault::{CannotOpen, MasterKey, Vault};

use crate::harness::{World, in_world};

/// How many secrets are under another key, of how many; none if all fit.
async fn under_another_key(world: &World, vault: &Vault) -> Option<(i64, i64)> {
    match world.store.check_vault(vault).await {
        Ok(()) => None,
        Err(StoreError::OtherKey { other, all }) => Some((other, all)),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_master_key_must_be_the_one_of_every_stored_secret() {
    in_world(async |world| {
        world.another_tenant("beta").await;
        assert_eq!(under_another_key(world, &world.vault).await, None);
        let stranger = Vault::new(&MasterKey::generate(&*world.clock).into());
        assert_eq!(under_another_key(world, &stranger).await, Some((4, 4)));
        let told = world.store.check_vault(&stranger).await.unwrap_err().to_string();
        assert!(told.contains("4 of the 4 secrets") && told.contains("set PUBLISH_MASTER_KEY"), "{told}");

        // One alone is enough, of whatever kind and tenant.
        for (lose, find) in [
            ("UPDATE tenants SET marker_key_sealed = set_byte(marker_key_sealed, 2, get_byte(marker_key_sealed, 2) # 1) WHERE name = 'beta'", 4),
            ("UPDATE signing_secrets SET sealed = set_byte(sealed, 4, get_byte(sealed, 4) # 1) WHERE tenant_id = (SELECT max(tenant_id::text)::uuid FROM tenants)", 4),
        ] {
            world.execute(lose).await;
            assert_eq!(under_another_key(world, &world.vault).await, Some((1, find)), "{lose}");
            world.execute(lose).await;
            assert_eq!(under_another_key(world, &world.vault).await, None, "{lose}");
        }
        world.execute("UPDATE accounts SET credentials_sealed = 'x' WHERE account_id = 'blog2' AND tenant_id = (SELECT tenant_id FROM tenants WHERE name = 'acme')").await;
        assert_eq!(under_another_key(world, &world.vault).await, Some((1, 5)));
        world.execute("UPDATE accounts SET credentials_sealed = NULL").await;
        assert_eq!(under_another_key(world, &world.vault).await, None);
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_begins_right_is_opened_as_well() {
    for damage in [
        "UPDATE tenants SET marker_key_sealed = set_byte(marker_key_sealed, 40, get_byte(marker_key_sealed, 40) # 1)",
        "UPDATE signing_secrets SET sealed = set_byte(sealed, 40, get_byte(sealed, 40) # 1)",
    ] {
        in_world(async |world| {
            world.execute(damage).await;
            let checked = world.store.check_vault(&world.vault).await;
            assert!(matches!(checked, Err(StoreError::Sealed(CannotOpen::Damaged))), "{damage}");
        })
        .await;
    }
}
