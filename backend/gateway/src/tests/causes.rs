//! That what is done for a request says for which: by the id that whoever sent it is shown.

use eirene_core::RequestId;
use eirene_core::launcher::Cause;
use serde_json::json;

use super::files::real;
use super::*;

/// What a launcher is told of the request that was answered so.
fn of(answer: &Answer) -> Cause {
    Cause { request: Some(answer.header("x-request-id").parse::<RequestId>().unwrap()), session: None }
}

#[tokio::test]
async fn a_file_process_is_started_for_the_request_that_needed_it_first() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(real()).await;
    let first = server.get(&ada, "/files").await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.body);
    assert_eq!(server.get(&ada, "/files").await.status, StatusCode::OK);
    assert_eq!(*server.test.launcher.causes.lock().unwrap(), [of(&first)]);
}

#[tokio::test]
async fn what_goes_on_without_the_request_is_still_done_for_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let wish = Ask::new("POST", "/api/v1/nodes/c1/drain").bearer(&admin).json(&json!({"reason": "fan"}));
    let answer = server.portal(wish).await;
    assert!(answer.status.is_success(), "{}", answer.body);
    assert_eq!(server.test.scheduler.state().causes, [of(&answer)]);
}
