//! The platform `static_site`.
