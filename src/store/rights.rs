//! What `serve` may do in the database: nothing but read and write rows, and of each table only what its statements do.
//!
//! The owner of the tables can change and drop them, switch their triggers off, and make keys of any tenant. `serve` needs
//! none of that, so it can run as a role of its own, to which `migrate --grant` gives what [`RIGHTS`] says.

use sqlx::AssertSqlSafe;

use super::{Store, StoreError};

/// Of each table, what the statements of `serve` need. What only an operator's commands do (tenants, API keys) is not
/// among it. A lock needs the right to update some column: of `tenants`, one that means nothing.
const RIGHTS: [(&str, &[&str]); 27] = [
    ("_sqlx_migrations", &["SELECT"]),
    ("accounts", &["SELECT", "INSERT", "UPDATE"]),
    ("api_keys", &["SELECT"]),
    ("articles", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("attempts", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("callback_tries", &["SELECT", "INSERT", "DELETE"]),
    ("callbacks", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("events", &["SELECT", "INSERT", "DELETE"]),
    ("feeds", &["SELECT", "UPDATE"]),
    ("group_members", &["SELECT", "INSERT", "DELETE"]),
    ("groups", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("lanes", &["SELECT", "INSERT", "UPDATE"]),
    ("publications", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("quota_shares", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("quotas", &["SELECT", "INSERT", "UPDATE"]),
    ("receivers", &["SELECT", "INSERT", "UPDATE"]),
    ("replay_events", &["SELECT", "INSERT", "DELETE"]),
    ("replays", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("retentions", &["SELECT", "UPDATE"]),
    ("sandbox_accounts", &["SELECT", "INSERT", "UPDATE"]),
    ("sandbox_articles", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("sandbox_marks", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("sandbox_requests", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("signing_secrets", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("tasks", &["SELECT", "INSERT", "UPDATE"]),
    ("tenants", &["SELECT", "UPDATE (created_at)"]),
    ("transitions", &["SELECT", "INSERT", "DELETE"]),
];

/// What is wrong with a role.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// It is not there.
    #[error("there is no role {0}: make it first, by CREATE ROLE … LOGIN PASSWORD '…', and run this again")]
    NoRole(String),
    /// It may do everything, whatever it is granted.
    #[error(
        "the role {0} is a superuser or owns the tables, itself or as a member of their owner, so a grant takes nothing from \
         it: name a role that is neither"
    )]
    Owner(String),
    /// It may not do what `serve` does.
    #[error(
        "the database's role {role} lacks rights ({missing}): run `publish-ingest migrate --grant {role}` as the owner of the \
         tables"
    )]
    Missing {
        /// The role.
        role: String,
        /// The rights, each with its table.
        missing: String,
    },
}

/// As what a connection works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorksAs {
    /// As a role that may change and drop the tables: their owner, or a superuser.
    Owner(String),
    /// As a role that has what it was granted.
    Granted,
}

impl Store {
    /// Gives a role what `serve` needs on this schema, and takes what it had on its tables beyond that.
    pub async fn grant_rights(&self, role: &str) -> Result<(), StoreError> {
        let found = sqlx::query!(
            r#"SELECT quote_ident(r.rolname) AS "name!", quote_ident(current_schema()) AS "schema!",
                pg_has_role(r.oid, c.relowner, 'MEMBER') AS "owner!"
            FROM pg_roles r, pg_class c WHERE r.rolname = $1 AND c.oid = 'tasks'::regclass"#,
            role,
        );
        let found = found.fetch_optional(&self.pool).await?;
        let found = found.ok_or_else(|| RightsError::NoRole(role.to_owned()))?;
        if found.owner {
            return Err(RightsError::Owner(role.to_owned()).into());
        }
        let (role, tables) = (found.name, RIGHTS.map(|(table, _)| table).join(", "));
        let mut statements = vec![
            // Two at once would stumble over each other's rows in the catalogue.
            "LOCK TABLE _sqlx_migrations IN SHARE ROW EXCLUSIVE MODE".to_owned(),
            format!("GRANT USAGE ON SCHEMA {} TO {role}", found.schema),
            format!("REVOKE ALL ON {tables} FROM {role}"),
        ];
        statements.extend(
            RIGHTS.iter().map(|(table, rights)| format!("GRANT {} ON {table} TO {role}", rights.join(", "))),
        );
        let mut transaction = self.pool.begin().await?;
        for statement in statements {
            // Of the text, only the names of role and schema come from outside, and the database has quoted them.
            sqlx::query(AssertSqlSafe(statement)).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// As what `serve` would work here; an error if that role may not do all that it does.
    pub async fn works_as(&self) -> Result<WorksAs, StoreError> {
        let owner = sqlx::query!(
            r#"SELECT current_user::text AS "role!", pg_has_role(relowner, 'MEMBER') AS "owner!"
            FROM pg_class WHERE oid = 'tasks'::regclass"#,
        );
        let owner = owner.fetch_one(&self.pool).await?;
        if owner.owner {
            return Ok(WorksAs::Owner(owner.role));
        }
        let needed =
            RIGHTS.iter().flat_map(|(table, rights)| rights.iter().map(|right| (*table, word(right))));
        let (tables, rights): (Vec<_>, Vec<_>) = needed.unzip();
        // A right on a column is enough for a lock; nothing can be deleted by columns.
        let missing = sqlx::query_scalar!(
            r#"SELECT string_agg(need || ' on ' || place, ', ' ORDER BY place, need)
            FROM unnest($1::text[], $2::text[]) AS n(place, need)
            WHERE NOT CASE WHEN need = 'DELETE' THEN has_table_privilege(place, need)
                ELSE has_any_column_privilege(place, need) END"#,
            &tables as &[&str],
            &rights as &[&str],
        );
        match missing.fetch_one(&self.pool).await? {
            None => Ok(WorksAs::Granted),
            Some(missing) => Err(RightsError::Missing { role: owner.role, missing }.into()),
        }
    }
}

/// A right without its columns.
fn word(right: &'static str) -> &'static str {
    right.split(' ').next().unwrap_or(right)
}
