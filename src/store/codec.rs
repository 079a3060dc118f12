//! How our own types travel to and from the database.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

use crate::task::state::Status;

impl Type<Postgres> for Status {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        <str as Type<Postgres>>::compatible(ty)
    }
}

impl PgHasArrayType for Status {
    fn array_type_info() -> PgTypeInfo {
        <&str as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Status {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <&str as Encode<Postgres>>::encode_by_ref(&self.as_str(), buffer)
    }
}

impl Decode<'_, Postgres> for Status {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let name = <&str as Decode<Postgres>>::decode(value)?;
        Self::named(name).ok_or_else(|| format!("there is no state {name:?}").into())
    }
}
