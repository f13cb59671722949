//! Repositories over SQLite and PostgreSQL
