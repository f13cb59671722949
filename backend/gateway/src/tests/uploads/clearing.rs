//! What becomes of uploads that nobody goes on with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use super::*;

#[tokio::test]
async fn what_nobody_went_on_with_is_removed_once_that_is_certain() {
    let bench = Bench::new().await;
    let (uploads, db) = (bench.server.test.app.uploads.clone(), bench.server.test.app.db.clone());
    let upload = bench.make(10, &[("path", "a")]).await;
    assert_eq!(bench.patch(&upload, 0, b"12345").await.status, StatusCode::NO_CONTENT);
    let (id, long) = (upload.rsplit('/').next().unwrap().parse().unwrap(), Duration::from_mins(1));
    bench.clear_for(30).await;
    assert_eq!(bench.names().len(), 2, "it is not over");
    bench.server.test.clock.advance_s(8 * 24 * 60 * 60);
    let gone = bench.ask(Ask::new("HEAD", &upload)).await;
    assert_eq!(gone.status, StatusCode::GONE, "it is over, and still there");
    uploads.clear(long).await.unwrap();
    bench.clear_for(23).await;
    assert_eq!(bench.names().len(), 2, "a clock that jumped may stay wrong until somebody sees to it");
    bench.server.test.clock.advance_s(-2 * 60 * 60);
    uploads.clear(long).await.unwrap();
    bench.clear_for(23).await;
    assert_eq!(bench.names().len(), 2, "nor is one right that went back");
    // Nobody answers: nothing is known.
    bench.server.test.app.file_processes.close();
    let files = bench.server.test.launcher.files.lock().unwrap().take();
    bench.clear_for(1).await;
    assert!(db.upload(id).await.unwrap().is_some() && bench.names().len() == 2);
    *bench.server.test.launcher.files.lock().unwrap() = files;
    let bench = bench.restart().await;
    bench.clear_for(1).await;
    assert!(db.upload(id).await.unwrap().is_none(), "another portal knows what was counted");
    assert_eq!(bench.names(), Vec::<String>::new());
}

#[tokio::test]
async fn restarts_cost_uploads_that_are_over_the_time_in_between_and_no_more() {
    let bench = Bench::new().await;
    let db = bench.server.test.app.db.clone();
    let upload = bench.make(10, &[("path", "a")]).await;
    assert_eq!(bench.patch(&upload, 0, b"12345").await.status, StatusCode::NO_CONTENT);
    let id = upload.rsplit('/').next().unwrap().parse().unwrap();
    bench.clear_for(30).await;
    // A clock that jumped while no portal was there.
    bench.server.test.clock.advance_s(8 * 24 * 60 * 60);
    let bench = bench.restart().await;
    bench.clear_for(20).await;
    assert!(db.upload(id).await.unwrap().is_some(), "19 hours are between the looks");
    let bench = bench.restart().await;
    bench.clear_for(5).await;
    assert!(db.upload(id).await.unwrap().is_some(), "23 are counted");
    bench.clear_for(1).await;
    assert!(db.upload(id).await.unwrap().is_none());
    assert_eq!(bench.names(), Vec::<String>::new());
}

/// Its row is read once for many questions, each of which may take long.
#[tokio::test]
async fn what_somebody_goes_on_with_while_the_file_process_is_asked_about_it_stays() {
    let bench = Bench::new().await;
    let upload = bench.make(10, &[("path", "a")]).await;
    assert_eq!(bench.patch(&upload, 0, b"12345").await.status, StatusCode::NO_CONTENT);
    let id: UploadId = upload.rsplit('/').next().unwrap().parse().unwrap();
    bench.server.test.clock.advance_s(8 * 24 * 60 * 60);
    bench.clear_for(24).await;
    let bench = bench.restart().await;
    bench.clear_for(1).await;
    assert_eq!(bench.names().len(), 2, "it is over, and 23 hours are counted");

    // The file process answers when it may.
    let real = bench.server.test.launcher.files.lock().unwrap().take().unwrap();
    let (asked, (go, may_go)) = (Arc::new(AtomicBool::new(false)), channel::<()>());
    let (is_asked, may_go) = (Arc::clone(&asked), Mutex::new(may_go));
    *bench.server.test.launcher.files.lock().unwrap() = Some(Arc::new(move |person, channel| {
        is_asked.store(true, Ordering::SeqCst);
        let _ = may_go.lock().unwrap().recv();
        real(person, channel);
    }));
    let (uploads, clock) = (bench.server.test.app.uploads.clone(), bench.server.test.clock.clone());
    clock.advance_s(60 * 60);
    let clearing = tokio::spawn(async move { uploads.clear(Duration::from_mins(1)).await });
    bench.wait_until("it is chosen", |_| asked.load(Ordering::SeqCst)).await;
    // Whoever is responsible for the clock sees to it, and somebody goes on.
    clock.advance_s(-3 * 24 * 60 * 60);
    let before = bench.server.test.app.db.upload(id).await.unwrap().unwrap().expires_at;
    let resumed = async {
        let waited = tokio::time::timeout(Duration::from_mins(1), async {
            while bench.server.test.app.db.upload(id).await.unwrap().unwrap().expires_at == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert!(waited.await.is_ok(), "it is resumed");
        drop(go);
    };
    let (answer, ()) = tokio::join!(bench.patch(&upload, 5, b"6"), resumed);
    clearing.await.unwrap().unwrap();
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.body);
    assert_eq!(bench.offset(&upload).await, 6, "nothing of it is removed");
}
