//! The file browser's pages, against the real file process over a directory of the test: what they show, and what their forms do without
//! any script.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use data_encoding::BASE64URL_NOPAD;
use eirene_core::Username;
use eirene_files_protocol::Channel;

use super::files::real;
use super::*;

const FILES: &str = "/spaces/home/files";

impl Server {
    async fn page(&self, person: &Person, path: &str) -> Answer {
        self.portal(Ask::get(path).page().cookie(person)).await
    }

    /// Sends a form of this page; where it leads to.
    async fn sent(&self, person: &Person, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.portal(Ask::new("POST", path).form(person, fields)).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}: {}", answer.body);
        answer.header("location").to_owned()
    }
}

fn raw(name: &str) -> String {
    BASE64URL_NOPAD.encode(name.as_bytes())
}

/// What stands between `before` and the next `"`.
fn attribute<'a>(page: &'a str, before: &str) -> &'a str {
    page.split_once(before).unwrap_or_else(|| panic!("no {before}: {page}")).1.split('"').next().unwrap()
}

#[tokio::test]
async fn names_are_text_and_lead_to_what_has_them() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let names: [&[u8]; 4] = [b"<img src=x onerror=alert(1)>", b"\"><script>alert(1)<", b"two\nlines\r", b"caf\xe9"];
    for name in names {
        std::fs::write(home.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    std::fs::write(home.join("\u{202e}gpj.exe"), "x").unwrap();
    std::fs::create_dir(home.join("a b")).unwrap();
    std::fs::create_dir(home.join(".eirene")).unwrap();
    let page = server.page(&ada, FILES).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    for bad in ["<img src", "<script>alert", "two\nlines", "\u{202e}", "/.eirene"] {
        assert!(!page.body.contains(bad), "{bad:?}");
    }
    for good in [
        "&lt;img src=x onerror=alert(1)&gt;",
        "two\u{240a}lines\u{240d}",
        "\u{fffd}gpj.exe",
        "href=\"/spaces/home/files?path=a+b\"",
        "?path=two%0Alines%0D\"",
        "?raw_path=Y2Fm6Q\"",
    ] {
        assert!(page.body.contains(good), "{good}");
    }
    for name in names {
        let entry = format!("{FILES}/entry?raw_path={}", BASE64URL_NOPAD.encode(name));
        let entry = server.page(&ada, &entry).await;
        assert_eq!(entry.status, StatusCode::OK, "{}", entry.body);
        assert!(!entry.body.contains("<img") && !entry.body.contains("<script>alert"));
    }
}

#[tokio::test]
async fn a_long_list_is_paged_sorted_and_filtered_by_links() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    for n in 0..201 {
        std::fs::write(home.join(format!("n{n:03}")), vec![0; n]).unwrap();
    }
    std::fs::write(home.join(".hidden"), "x").unwrap();
    let page = server.page(&ada, FILES).await.body;
    assert!(page.contains("201 entries") && page.contains("<bdi>n199</bdi>") && !page.contains("<bdi>n200</bdi>"));
    assert!(!page.contains(".hidden"));
    let next = page.split("href=\"").map(|rest| rest.split('"').next().unwrap()).find(|href| href.contains("cursor="));
    let next = server.page(&ada, next.unwrap()).await.body;
    assert!(next.contains("<bdi>n200</bdi>") && !next.contains("<bdi>n000</bdi>") && !next.contains("cursor="));
    let largest = server.page(&ada, &format!("{FILES}?sort=size&order=desc")).await.body;
    assert!(largest.contains("<bdi>n200</bdi>") && !largest.contains("<bdi>n000</bdi>"));
    assert!(largest.contains("aria-sort=\"descending\""));
    let filtered = server.page(&ada, &format!("{FILES}?filter=N07")).await.body;
    assert!(filtered.contains("10 entries") && filtered.contains("<bdi>n070</bdi>"));
    let none = server.page(&ada, &format!("{FILES}?filter=nothing&hidden=true")).await.body;
    assert!(none.contains(&eirene_words::words().get("browser.empty_filter")));
    assert!(server.page(&ada, &format!("{FILES}?hidden=true")).await.body.contains("<bdi>.hidden</bdi>"));
    // What nobody knows is as if it were not said.
    let odd = server.page(&ada, &format!("{FILES}?sort=owner&order=up&cursor=x&hidden=yes")).await;
    assert_eq!(odd.status, StatusCode::OK);
}

#[tokio::test]
async fn everything_can_be_done_by_forms_alone() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let to = server.sent(&ada, &format!("{FILES}/directories"), &[("raw", ""), ("name", "é <b>")]).await;
    assert_eq!(to, "/spaces/home/files?done=made");
    assert!(home.join("é <b>").is_dir());
    std::fs::write(home.join("é <b>/a"), "abc").unwrap();

    let a = raw("é <b>/a");
    let fields = [("raw", a.as_str()), ("to", "é <b>/b\u{202e}"), ("on_conflict", "refuse")];
    let to = server.sent(&ada, &format!("{FILES}/move"), &fields).await;
    assert_eq!(to, "/spaces/home/files?path=%C3%A9+%3Cb%3E&done=moved");
    let b = raw("é <b>/b\u{202e}");
    server.sent(&ada, &format!("{FILES}/copy"), &[("raw", b.as_str()), ("to", "c"), ("on_conflict", "refuse")]).await;
    while !home.join("c").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }

    server.sent(&ada, &format!("{FILES}/permissions"), &[("raw", raw("c").as_str()), ("share", "group_reads")]).await;
    assert_eq!(std::fs::metadata(home.join("c")).unwrap().permissions().mode() & 0o777, 0o640);

    let to = server.sent(&ada, &format!("{FILES}/trash"), &[("raw", raw("c").as_str())]).await;
    assert!(!home.join("c").exists());
    let page = server.page(&ada, &to).await.body;
    let undo = attribute(&page, "undo\" method=\"post\" action=\"").to_owned();
    let to = server.sent(&ada, &undo, &[]).await;
    assert_eq!((to.as_str(), home.join("c").exists()), ("/spaces/home/files?done=restored", true));

    server.sent(&ada, &format!("{FILES}/trash"), &[("raw", raw("c").as_str())]).await;
    let trash = server.page(&ada, "/spaces/home/trash").await.body;
    assert!(trash.contains("<bdi>c</bdi>"), "{trash}");
    let delete =
        trash.split("href=\"").map(|rest| rest.split('"').next().unwrap()).find(|href| href.ends_with("/delete"));
    let delete = delete.unwrap().to_owned();
    let asks = server.page(&ada, &delete).await;
    assert!(asks.status == StatusCode::OK && asks.body.contains(&format!("action=\"{delete}\"")));
    assert!(server.page(&ada, "/spaces/home/trash").await.body.contains("<bdi>c</bdi>"), "asking deletes nothing");
    server.sent(&ada, &delete, &[]).await;
    let none = eirene_words::words().get("trash.none");
    while !server.page(&ada, "/spaces/home/trash").await.body.contains(&none) {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn what_is_picked_comes_as_one_archive_by_a_form() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    for name in ["a", "b"] {
        std::fs::write(home.join(name), name).unwrap();
    }
    let (a, b) = (raw("a"), raw("b"));
    let ask = |fields: &[(&str, &str)]| Ask::new("POST", &format!("{FILES}/archive")).form(&ada, fields);
    let zip = server.portal(ask(&[("raw", &a), ("raw", &b), ("format", "zip")])).await;
    assert_eq!(zip.status, StatusCode::OK, "{}", zip.body);
    assert!(zip.header("content-disposition").contains("\"home-ada.zip\""));
    assert_eq!(zip.header("content-security-policy"), "sandbox; default-src 'none'");
    assert!(zip.body.starts_with("PK"));
    let gone = server.portal(ask(&[("raw", &a), ("raw", &raw("<b>")), ("format", "tar")])).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert!(gone.body.contains("&lt;b&gt;") && !gone.body.contains("<b>`"), "{}", gone.body);
}

#[tokio::test]
async fn what_cannot_be_shown_or_done_says_why_and_what_to_do() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "x").unwrap();
    std::fs::write(home.join("b"), "y").unwrap();
    let words = eirene_words::words();
    for (path, status, key) in [
        ("/spaces/nowhere/files".to_owned(), StatusCode::NOT_FOUND, "error.text_404"),
        (format!("{FILES}?path=gone"), StatusCode::NOT_FOUND, "browser.advice_not_there"),
        (format!("{FILES}/entry?path=gone"), StatusCode::NOT_FOUND, "browser.advice_not_there"),
        (format!("{FILES}?path=a"), StatusCode::CONFLICT, "browser.advice"),
        (format!("{FILES}?path=../ada"), StatusCode::UNPROCESSABLE_ENTITY, "browser.advice"),
        (format!("{FILES}/entry"), StatusCode::UNPROCESSABLE_ENTITY, "browser.advice"),
    ] {
        let page = server.page(&ada, &path).await;
        assert_eq!(page.status, status, "{path}");
        assert!(page.body.contains(&words.get(key)), "{path}: {}", page.body);
    }
    let a = raw("a");
    let fields = [("raw", a.as_str()), ("to", "b"), ("on_conflict", "refuse")];
    let taken = server.portal(Ask::new("POST", &format!("{FILES}/move")).form(&ada, &fields)).await;
    assert_eq!(taken.status, StatusCode::CONFLICT);
    assert!(taken.body.contains("Something of this name lies there already"), "{}", taken.body);
    assert_eq!(std::fs::read(home.join("b")).unwrap(), b"y");
    for name in ["", "x/y", "../z"] {
        let ask = Ask::new("POST", &format!("{FILES}/directories")).form(&ada, &[("raw", ""), ("name", name)]);
        assert_eq!(server.portal(ask).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{name}");
    }
    assert!(!home.join("x").exists() && !home.join("../z").exists());
}

#[tokio::test]
async fn a_storage_that_is_away_says_to_try_again() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(Arc::new(|_: Username, _: Channel| {})).await;
    let page = server.page(&ada, &format!("{FILES}?path=a")).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{}", page.body);
    assert!(page.body.contains(&eirene_words::words().get("browser.advice_away")), "{}", page.body);
    assert!(page.body.contains("href=\"/spaces/home/files?path=a\"") && !page.header("retry-after").is_empty());
}
