//! The user's and the admin's commands over the REST API

fn main() {}
