//! Shared HTTP code: who asks, from where and on which connection; extractors; problem responses; cookies, and the headers of every answer. Nothing
//! here knows a route.

/// One list for a router and for the test that knows who may do what on every route. With it there is no route that the list
/// lacks, so a crate with routes makes its routers with it alone.
#[macro_export]
macro_rules! listed_routes {
    ($($method:ident $path:literal => $handler:path;)*) => {
        /// Every route here, for the table of who may do what.
        pub const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)*];

        fn routes() -> axum::Router<eirene_services::app::App> {
            axum::Router::new()
                $(.route($path, axum::routing::on(axum::routing::MethodFilter::$method, $handler)))*
        }
    };
}

pub mod body;
pub mod content;
pub mod cookies;
pub mod crowd;
pub mod extract;
pub mod headers;
pub mod host;
pub mod problem;
pub mod request;
pub mod unhurried;
