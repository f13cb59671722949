//! The page of who may do what with one thing, against the real file process over a directory of the test: a list is made, changed and taken
//! away by forms alone, and what is seldom meant is asked about first.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use data_encoding::BASE64URL_NOPAD;

use super::files::real;
use super::*;

const PAGE: &str = "/spaces/home/files/permissions";

/// What a form says: the lines, then what else.
fn fields<'a>(raw: &'a str, lines: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let lines = lines.iter().flat_map(|(who, may)| [("who", *who), ("may", *may)]);
    [("raw", raw)].into_iter().chain(lines).chain(more.iter().copied()).collect()
}

fn least<'a>(owner: &'a str, group: &'a str, other: &'a str) -> [(&'a str, &'a str); 3] {
    [("owner", owner), ("owning_group", group), ("other", other)]
}

fn raw(name: &str) -> String {
    BASE64URL_NOPAD.encode(name.as_bytes())
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

impl Server {
    async fn list_form(&self, person: &Person, fields: &[(&str, &str)]) -> Answer {
        self.portal(Ask::new("POST", &format!("{PAGE}/list")).form(person, fields)).await
    }

    /// The list as the API says it.
    async fn lines(&self, person: &Person, name: &str, list: &str) -> Vec<(String, String)> {
        let path = format!("/live/spaces/home/files/permissions?path={name}");
        let shown = self.portal(Ask::get(&path).script(person)).await.json();
        let lines = shown[list].as_array().cloned().unwrap_or_default();
        let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
        lines.iter().map(|line| (text(line, "who"), text(line, "may"))).collect()
    }
}

#[tokio::test]
async fn a_list_is_made_changed_and_taken_away_by_forms() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("d")).unwrap();
    std::fs::write(home.join("d/data"), "x").unwrap();
    for (path, bits) in [("d", 0o700), ("d/data", 0o600)] {
        std::fs::set_permissions(home.join(path), std::fs::Permissions::from_mode(bits)).unwrap();
    }
    let words = eirene_words::words();
    let page = server.portal(Ask::get(&format!("{PAGE}?path=d")).page().cookie(&ada)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    for text in ["name=\"new_name\"", "value=\"owning_group\"", "name=\"recursive\""] {
        assert!(page.body.contains(text), "{text}");
    }
    assert!(page.body.contains(&words.get("permissions.you")) && !page.body.contains(&words.get("permissions.danger")));

    // A person, by name, with all that is in it and all that will be.
    let d = raw("d");
    let new = [("new_kind", "person"), ("new_name", "grace"), ("new_may", "rwx")];
    let more = [&new[..], &[("handed_on", "same"), ("recursive", "on")]].concat();
    let answer = server.list_form(&ada, &fields(&d, &least("rwx", "---", "---"), &more)).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    assert_eq!(answer.header("location"), format!("{PAGE}?path=d&done=permissions_below"));
    let grace = ("user:4711".to_owned(), "rw-".to_owned());
    while !server.lines(&ada, "d/data", "acl").await.contains(&grace) {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    while server.lines(&ada, "d", "default_acl").await.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let page = server.portal(Ask::get(&format!("{PAGE}?path=d")).page().cookie(&ada)).await.body;
    assert!(
        page.contains("value=\"user:4711\"") && page.contains("value=\"off\"") && page.contains("value=\"nothing\"")
    );

    // The same person again is no new line; what was typed is still there.
    let answer = server
        .list_form(&ada, &fields(&d, &[&least("rwx", "---", "---")[..], &[("user:4711", "r-x")]].concat(), &new))
        .await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer.body.contains("is in the list already") && answer.body.contains("value=\"grace\""),
        "{}",
        answer.body
    );

    let off = [&least("rwx", "r-x", "---")[..], &[("user:4711", "off")]].concat();
    let answer = server.list_form(&ada, &fields(&d, &off, &[("handed_on", "nothing"), ("new_name", "")])).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    assert_eq!(mode(&home.join("d")), 0o750);
    assert!(server.lines(&ada, "d", "acl").await.is_empty() && server.lines(&ada, "d", "default_acl").await.is_empty());
    let data = server.lines(&ada, "d/data", "acl").await;
    assert!(data.contains(&grace), "what is in it was not asked for: {data:?}");
}

#[tokio::test]
async fn what_is_seldom_meant_is_asked_about_and_changes_nothing_before() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("f"), "x").unwrap();
    let file = home.join("f");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let words = eirene_words::words();
    let f = raw("f");
    for (lines, key, becomes) in [
        (least("rw-", "r--", "rw-"), "permissions.opens_to_write", 0o646),
        (least("---", "r--", "rw-"), "permissions.locks_out", 0o046),
        (least("rw-", "r--", "---"), "", 0o640),
        (least("rw-", "r--", "r--"), "permissions.opens_to_read", 0o644),
    ] {
        let before = mode(&file);
        let answer = server.list_form(&ada, &fields(&f, &lines, &[])).await;
        if key.is_empty() {
            assert_eq!((answer.status, mode(&file)), (StatusCode::SEE_OTHER, becomes));
            continue;
        }
        assert_eq!((answer.status, mode(&file)), (StatusCode::UNPROCESSABLE_ENTITY, before), "{key}");
        assert!(answer.body.contains(&words.get(key)) && answer.body.contains("name=\"sure\""), "{}", answer.body);
        let answer = server.list_form(&ada, &fields(&f, &lines, &[("sure", "yes")])).await;
        assert_eq!((answer.status, mode(&file)), (StatusCode::SEE_OTHER, becomes), "{key}");
    }
}

#[tokio::test]
async fn a_form_that_is_none_changes_nothing_and_says_why() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let file = home.join("f");
    std::fs::write(&file, "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.join("out")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    server.test.groups.lose("nosuch");
    let (f, good) = (raw("f"), least("rwx", "rwx", "---"));
    for (lines, more, says) in [
        (
            &good[..],
            &[("new_kind", "person"), ("new_name", "nosuch"), ("new_may", "r--")][..],
            "nobody on the cluster is called “nosuch”",
        ),
        (&good, &[("new_name", "<b>x</b>"), ("new_may", "r--")], "is called “&lt;b&gt;x&lt;"),
        (&good, &[("new_name", "grace"), ("new_may", "all")], "not a line of an access control list"),
        (&good[..2], &[], "not a line of an access control list"),
        (&[&good[..], &[("mask", "rwx")]].concat(), &[], "not a line of an access control list"),
        (&[&good[..], &[("other", "---")]].concat(), &[], "not a line of an access control list"),
        (&least("off", "rwx", "---"), &[], "not a line of an access control list"),
        (&least("rwx", "rws", "---"), &[], "not a line of an access control list"),
    ] {
        let answer = server.list_form(&ada, &fields(&f, lines, more)).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{says}: {}", answer.body);
        assert!(answer.body.to_lowercase().contains(&says.to_lowercase()), "{says}: {}", answer.body);
        assert_eq!(mode(&file), 0o640, "{says}");
    }
    let before = std::fs::metadata("/etc/passwd").unwrap().permissions().mode();
    for (name, status) in [("out", 422), ("gone", 404), ("../ada/f", 422), (".eirene-trash", 403), ("", 422)] {
        let answer = server.list_form(&ada, &fields(&raw(name), &good, &[])).await;
        assert_eq!(answer.status.as_u16(), status, "{name}: {}", answer.body);
    }
    assert_eq!(std::fs::metadata("/etc/passwd").unwrap().permissions().mode(), before);
    // Nobody else's form, and none without its token.
    let grace = server.grace().await;
    let theirs = PAGE.replace("/home/", "/home-ada/");
    assert_eq!(
        server.portal(Ask::get(&format!("{theirs}?path=f")).page().cookie(&grace)).await.status,
        StatusCode::NOT_FOUND
    );
    let answer = server.portal(Ask::new("POST", &format!("{theirs}/list")).form(&grace, &fields(&f, &good, &[]))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.body);
    let stranger = Ask::new("POST", &format!("{PAGE}/list")).cookie(&ada).with("origin", PORTAL_ORIGIN);
    assert!(server.portal(stranger).await.status.is_client_error());
    assert_eq!(mode(&file), 0o640);
}
