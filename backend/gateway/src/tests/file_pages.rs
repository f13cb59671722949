//! The file browser's pages, against the real file process over a directory of the test: what they show, and what their forms do without
//! any script.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use data_encoding::BASE64URL_NOPAD;
use eirene_core::{Space, SpaceOwner, Username};
use eirene_files_protocol::Channel;
use eirene_services::spaces::testing::a_space;
use serde_json::json;

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
    let empty_line = |body: &str| {
        let line = body.split("data-empty").nth(1).unwrap().split("</p>").next().unwrap().to_owned();
        line.strip_prefix('>').map(ToOwned::to_owned)
    };
    assert_eq!(empty_line(&none), Some(eirene_words::words().get("browser.empty_filter")));
    assert_eq!(empty_line(&filtered), None, "it is hidden");
    std::fs::create_dir(home.join("nothing")).unwrap();
    let nothing = server.page(&ada, &format!("{FILES}?path=nothing")).await.body;
    assert_eq!(empty_line(&nothing), Some(eirene_words::words().get("browser.empty")));
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
async fn a_form_names_the_spaces_one_may_write_into_and_goes_into_no_other() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "hers").unwrap();
    let entry = format!("{FILES}/entry?path=a");
    let alone = server.page(&ada, &entry).await.body;
    assert!(alone.contains("name=\"on_conflict\"") && !alone.contains("name=\"to_space\""), "{alone}");

    let grace = server.grace().await;
    assert_eq!(server.test.app.spaces.list(&grace.actor).await.unwrap()[0].space.name.as_str(), "home-grace");
    let data = Space { name: "data".parse().unwrap(), ..a_space(SpaceOwner::Everybody) };
    for space in [data, a_space(SpaceOwner::Group("physics".parse().unwrap()))] {
        server.test.app.db.insert_space(space, &[]).await.unwrap();
    }
    server.test.groups.add("ada", "physics");
    // Her groups are known for a minute.
    server.test.clock.advance_s(120);
    let page = server.page(&ada, &entry).await.body;
    assert!(page.contains("<option value=\"home\" selected>"), "{page}");
    assert!(page.contains("<option value=\"physics\">Physics</option>"), "{page}");
    assert!(!page.contains("value=\"data\"") && !page.contains("home-grace"), "{page}");

    let a = raw("a");
    let fields = |into: &'static str| [("raw", a.as_str()), ("to", "b"), ("to_space", into), ("on_conflict", "refuse")];
    for verb in ["move", "copy"] {
        let form =
            async |into| server.portal(Ask::new("POST", &format!("{FILES}/{verb}")).form(&ada, &fields(into))).await;
        for (into, status) in
            [("home-grace", StatusCode::NOT_FOUND), ("nowhere", StatusCode::NOT_FOUND), ("data", StatusCode::FORBIDDEN)]
        {
            let body = json!({"items": [{"path": "a", "to": "b"}], "to_space": into});
            let program = server.send_json(&ada, "POST", &format!("/files/{verb}"), &body).await;
            let page = form(into).await;
            assert_eq!((page.status, program.status), (status, status), "{verb} {into}: {}", page.body);
        }
        assert!(form("../ada").await.status.is_client_error());
    }
    let begun = server.portal(Ask::get("/api/v1/operations").bearer(&ada)).await.json();
    assert_eq!(begun["items"], json!([]));
    assert!(home.join("a").exists() && !home.join("b").exists());
    let to = server.sent(&ada, &format!("{FILES}/move"), &fields("home-ada")).await;
    assert_eq!(to, "/spaces/home-ada/files?done=moved");
    assert!(home.join("b").exists() && !home.join("a").exists());
}

#[tokio::test]
async fn an_archive_is_unpacked_by_a_form_and_a_file_that_is_none_has_no_such_form() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("é <b>")).unwrap();
    std::fs::write(home.join("é <b>/\u{1f30d}"), "abc").unwrap();
    let ask = Ask::get("/api/v1/spaces/home/files/archive?path=%C3%A9+%3Cb%3E").bearer(&ada);
    let saved = server.portal(ask).await;
    assert_eq!(saved.status, StatusCode::OK);
    for name in ["saved.tar", "plain.txt"] {
        std::fs::write(home.join(name), &saved.body).unwrap();
    }
    let page = async |name: &str| server.page(&ada, &format!("{FILES}/entry?path={name}")).await.body;
    assert!(!page("plain.txt").await.contains("/files/extract"));
    let archive = page("saved.tar").await;
    assert!(archive.contains("action=\"/spaces/home/files/extract\""), "{archive}");
    assert_eq!(attribute(&archive, "id=\"f-unpack\" name=\"to\" value=\""), "saved");
    let raw = raw("saved.tar");
    let fields = |to| [("raw", raw.as_str()), ("to", to), ("on_conflict", "keep_both")];
    let to = server.sent(&ada, &format!("{FILES}/extract"), &fields("saved")).await;
    assert_eq!(to, "/spaces/home/files?done=unpacking");
    assert!(server.page(&ada, &to).await.body.contains("It is being unpacked"));
    while !home.join("saved").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(std::fs::read_to_string(home.join("saved/é <b>/\u{1f30d}")).unwrap(), "abc");
    let climbs = server.portal(Ask::new("POST", &format!("{FILES}/extract")).form(&ada, &fields("../x"))).await;
    assert_eq!(climbs.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", climbs.body);
}

#[tokio::test]
async fn a_folders_page_has_it_as_zip_or_tar_and_a_files_page_has_the_file() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("d e")).unwrap();
    std::fs::write(home.join("d e/a"), "abc").unwrap();
    let hrefs = async |path: &str| -> Vec<String> {
        let page = server.page(&ada, &format!("{FILES}/entry?path={path}")).await.body;
        let all = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
        all.filter(|href| href.starts_with("/live/spaces/home/files/")).collect()
    };
    let folder = hrefs("d+e").await;
    let archive = "/live/spaces/home/files/archive?path=d+e&format=";
    assert_eq!(folder, [format!("{archive}zip"), format!("{archive}tar")]);
    for (href, name) in folder.iter().zip(["\"d e.zip\"", "\"d e.tar\""]) {
        let saved = server.portal(Ask::get(href).cookie(&ada)).await;
        assert_eq!(saved.status, StatusCode::OK, "{}", saved.body);
        assert!(saved.header("content-disposition").contains(name), "{}", saved.header("content-disposition"));
    }
    assert_eq!(hrefs("d+e%2Fa").await, ["/live/spaces/home/files/content?path=d+e%2Fa"]);
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
async fn a_form_about_anothers_space_finds_nothing_and_changes_nothing() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let (grace, admin) = (server.grace().await, server.admin().await);
    for name in ["a", "b"] {
        std::fs::write(home.join(name), "hers").unwrap();
    }
    let to = server.sent(&ada, &format!("{FILES}/trash"), &[("raw", raw("b").as_str())]).await;
    let id = to.split_once("undo=").unwrap().1;
    let state = || {
        let entries = std::fs::read_dir(&home).unwrap().map(Result::unwrap);
        let mut entries: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().permissions().mode())).collect();
        entries.sort();
        (entries, std::fs::read(home.join("a")).unwrap())
    };
    let (before, started) = (state(), server.started());
    let a = raw("a");
    let elsewhere = vec![("raw", a.as_str()), ("to", "c"), ("on_conflict", "replace")];
    let share = vec![("raw", a.as_str()), ("share", "group_writes")];
    let lines = [("who", "owner"), ("may", "rwx"), ("who", "owning_group"), ("may", "rwx"), ("who", "other")];
    for (place, fields) in [
        ("files/directories".to_owned(), vec![("raw", ""), ("name", "d")]),
        ("files/move".to_owned(), elsewhere.clone()),
        ("files/copy".to_owned(), elsewhere.clone()),
        ("files/extract".to_owned(), elsewhere),
        ("files/trash".to_owned(), vec![("raw", a.as_str())]),
        ("files/archive".to_owned(), vec![("raw", a.as_str()), ("format", "zip")]),
        ("files/permissions".to_owned(), share.clone()),
        ("files/permissions".to_owned(), [share, vec![("recursive", "on")]].concat()),
        ("files/permissions/list".to_owned(), [&[("raw", a.as_str())][..], &lines, &[("may", "rwx")]].concat()),
        (format!("trash/{id}/restore"), vec![]),
        (format!("trash/{id}/delete"), vec![]),
        ("trash/empty".to_owned(), vec![]),
    ] {
        for name in ["home-ada", "not-there"] {
            for person in [&grace, &admin] {
                let path = format!("/spaces/{name}/{place}");
                let answer = server.portal(Ask::new("POST", &path).form(person, &fields)).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path} {fields:?}: {}", answer.body);
            }
        }
    }
    assert_eq!((state(), server.started()), (before, started));
    for person in [&grace, &admin] {
        let begun = server.portal(Ask::get("/api/v1/operations").bearer(person)).await.json();
        assert_eq!(begun["items"], json!([]), "nothing was begun");
    }
    assert!(server.page(&ada, "/spaces/home/trash").await.body.contains("<bdi>b</bdi>"));
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
