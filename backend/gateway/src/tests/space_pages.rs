//! The admins' pages about everybody's spaces: what they do without any script, whom they are for, and what they refuse.

use eirene_core::old_files::{OldFilesFound, OldFilesList, OldFilesState};
use eirene_services::config;
use eirene_services::spaces::making::Stepped;

use super::*;

const SPACES: &str = "/admin/storage/spaces";
const EMPTY: [(&str, &str); 9] = [
    ("root", "project"),
    ("name", ""),
    ("title", ""),
    ("owner", ""),
    ("group", ""),
    ("hint", ""),
    ("expires_at", ""),
    ("limit_gib", ""),
    ("limit_files", ""),
];

/// What the form of a space is shown with that has nothing of its own, and as what it comes back where nobody touches it.
const UNCHANGED: [(&str, &str); 10] = [
    ("title", ""),
    ("hint", "usual"),
    ("expires_at", ""),
    ("limit_gib", ""),
    ("limit_files", ""),
    ("shown_title", ""),
    ("shown_hint", "usual"),
    ("shown_expires_at", ""),
    ("shown_limit_gib", ""),
    ("shown_limit_files", ""),
];

/// A form with these fields instead of those it has.
fn with<'a>(form: &[(&'a str, &'a str)], said: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let value = |field: &str| said.iter().find(|(name, _)| *name == field).map(|(_, value)| *value);
    form.iter().map(|&(name, usual)| (name, value(name).unwrap_or(usual))).collect()
}

/// The form that makes a space, with these fields instead of empty ones.
fn wish<'a>(said: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    with(&EMPTY, said)
}

/// The form that changes one, likewise.
fn change<'a>(said: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    with(&UNCHANGED, said)
}

/// The fields of the form on this page of a space as a browser sends them, with these typed into it.
fn typed(page: &str, said: &[(&str, &str)]) -> Vec<(String, String)> {
    let shown = |name: &str| {
        let (_, rest) =
            page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {page}"));
        rest.split('"').next().unwrap().to_owned()
    };
    let mut fields = Vec::new();
    for (name, _) in UNCHANGED.iter().filter(|(name, _)| !name.starts_with("shown_")) {
        let (hidden, was) = (format!("shown_{name}"), shown(&format!("shown_{name}")));
        let now = said.iter().find(|(said, _)| said == name).map_or(was.clone(), |(_, value)| (*value).to_owned());
        fields.extend([((*name).to_owned(), now), (hidden, was)]);
    }
    fields
}

impl Server {
    /// Opens the page of a space and sends its form with these typed into it.
    async fn type_in(&self, person: &Person, path: &str, said: &[(&str, &str)]) -> Answer {
        let page = self.look_at(person, path).await.body;
        self.send_form(person, path, &typed(&page, said)).await
    }

    async fn send_form(&self, person: &Person, path: &str, fields: &[(String, String)]) -> Answer {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.fill_in(person, path, &fields).await
    }

    async fn look_at(&self, person: &Person, path: &str) -> Answer {
        self.portal(Ask::get(path).page().cookie(person)).await
    }

    async fn fill_in(&self, person: &Person, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.portal(Ask::new("POST", path).form(person, fields)).await
    }

    /// Has everything done that is wished for.
    async fn settle(&self) {
        let making = &self.test.app.making;
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for space in making.to_do().await.unwrap() {
                goes_on |= making.step(&space).await.unwrap() == Stepped::More;
            }
        }
    }
}

#[tokio::test]
async fn an_admin_makes_changes_takes_away_and_brings_back_a_space_by_forms_alone() {
    let server = Server::start().await;
    let admin = server.admin().await;
    assert!(server.look_at(&admin, "/admin/storage").await.body.contains("href=\"/admin/storage/spaces\""));
    let made = server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics")])).await;
    let stars = "/admin/storage/spaces/stars";
    assert_eq!(
        (made.status, made.header("location")),
        (StatusCode::SEE_OTHER, "/admin/storage/spaces/stars?done=space_wished")
    );
    assert!(server.look_at(&admin, stars).await.body.contains("It is being made."));
    server.settle().await;
    let listed = server.look_at(&admin, SPACES).await.body;
    assert!(listed.contains("Group physics") && listed.contains("href=\"/admin/storage/spaces/stars\""), "{listed}");

    let other = change(&[("title", "<i>Stars"), ("hint", "small_files"), ("expires_at", "2027-01-31")]);
    let changed = server.fill_in(&admin, stars, &other).await;
    assert_eq!(changed.status, StatusCode::SEE_OTHER, "{}", changed.body);
    let page = server.look_at(&admin, stars).await.body;
    for shown in ["&lt;i&gt;Stars", "value=\"2027-01-31\"", "31 January 2027", "/project/stars"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }

    let asked = server.look_at(&admin, &format!("{stars}/retire")).await.body;
    assert!(asked.contains("Nothing in it is removed before") && asked.contains("brought back"), "{asked}");
    let retired = server.fill_in(&admin, &format!("{stars}/retire"), &[]).await;
    assert_eq!(retired.header("location"), "/admin/storage/spaces/stars?done=space_retiring");
    server.settle().await;
    let page = server.look_at(&admin, stars).await.body;
    assert!(page.contains("It was taken away on") && page.contains("action=\"/admin/storage/spaces/stars/restore\""));
    assert!(!page.contains("/stars/retire"), "what is taken away is not taken away again");
    let policy = server.look_at(&admin, &format!("{stars}/policy")).await;
    assert!(policy.body.contains("Nothing is due: it is kept until "), "{}", policy.body);
    let back = server.fill_in(&admin, &format!("{stars}/restore"), &[]).await;
    assert_eq!(back.status, StatusCode::SEE_OTHER);
    server.settle().await;
    assert!(server.look_at(&admin, stars).await.body.contains("/stars/retire"));
}

#[tokio::test]
async fn what_is_wrong_with_a_form_is_said_at_its_field_and_what_was_typed_stays() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for (said, field) in [
        (&[("name", "../etc"), ("group", "physics")][..], "name"),
        (&[("name", "")], "name"),
        (&[("root", "nowhere"), ("name", "x")], "root"),
        (&[("root", ""), ("name", "x")], "root"),
        (&[("name", "x"), ("group", "a b")], "group"),
        (&[("name", "x"), ("owner", "nobody-there")], "owner"),
        (&[("name", "x"), ("hint", "odd")], "hint"),
        (&[("name", "x"), ("expires_at", "soon")], "expires_at"),
        (&[("name", "x"), ("expires_at", "2001-01-01")], "expires_at"),
    ] {
        let answer = server.fill_in(&admin, SPACES, &wish(said)).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{said:?}");
        assert!(answer.body.contains(&format!("id=\"e-{field}\"")), "{said:?}: {}", answer.body);
    }
    let two = server.fill_in(&admin, SPACES, &wish(&[("name", "A B"), ("group", "c d"), ("title", "<b>kept")])).await;
    for shown in ["id=\"e-name\"", "id=\"e-group\"", "value=\"A B\"", "&lt;b&gt;kept"] {
        assert!(two.body.contains(shown), "{shown}: {}", two.body);
    }
    assert!(server.test.app.making.to_do().await.unwrap().is_empty(), "nothing is left behind");

    server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics")])).await;
    let taken = server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics")])).await;
    assert_eq!(taken.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(taken.body.contains("id=\"e-name\""), "{}", taken.body);
    let untitled = server.type_in(&admin, "/admin/storage/spaces/stars", &[("title", "")]).await;
    assert_eq!(untitled.status, StatusCode::SEE_OTHER, "{}", untitled.body);
    assert!(server.look_at(&admin, "/admin/storage/spaces/stars").await.body.contains("value=\"stars\""));
    for (field, text, said) in [
        ("limit_gib", "much", "A whole number of GiB"),
        ("limit_files", "many", "A whole number of files"),
        ("limit_files", "-1", "A whole number of files"),
        ("limit_files", "0", "1 to 2^60"),
    ] {
        let wrong = [(field, text), ("title", "<b>kept")];
        let made = wish(&[&wrong[..], &[("name", "moons"), ("group", "physics")]].concat());
        for (path, form) in [("/admin/storage/spaces/stars", change(&wrong)), (SPACES, made)] {
            let refused = server.fill_in(&admin, path, &form).await;
            assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {field} {text}");
            let error = format!("id=\"e-{field}\"");
            let value = format!("id=\"f-{field}\" name=\"{field}\" type=\"text\" value=\"{text}\"");
            for shown in [error.as_str(), value.as_str(), said, "&lt;b&gt;kept"] {
                assert!(refused.body.contains(shown), "{path} {field} {text}, {shown}: {}", refused.body);
            }
        }
    }
    let both = server.fill_in(&admin, SPACES, &wish(&[("limit_gib", "x"), ("limit_files", "y")])).await;
    assert!(both.body.contains("id=\"e-limit_gib\"") && both.body.contains("id=\"e-limit_files\""), "{}", both.body);
}

#[tokio::test]
async fn a_limit_is_set_by_the_form_shown_and_not_changed_by_a_form_that_does_not_touch_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let stars = "/admin/storage/spaces/stars";
    server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics"), ("limit_gib", "500")])).await;
    let limit = async || server.portal(Ask::get("/api/v1/spaces/stars").bearer(&admin)).await.json()["limit"].clone();
    assert_eq!(limit().await, serde_json::json!({"bytes": 500_u64 << 30, "state": "wanted"}));
    server.settle().await;
    assert_eq!(limit().await, serde_json::json!({"bytes": 500_u64 << 30, "state": "not_held", "text": "no"}));
    let page = server.look_at(&admin, stars).await.body;
    assert!(page.contains("not held by the storage (no"), "{page}");
    let odd = serde_json::json!({"limit_bytes": (500_u64 << 30) - 1});
    let set = server.portal(Ask::new("PATCH", "/api/v1/spaces/stars").bearer(&admin).json(&odd)).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.body);
    let change = async |gib: &str| {
        server.type_in(&admin, stars, &[("limit_gib", gib)]).await;
        limit().await
    };
    assert_eq!(change("500").await["bytes"], (500_u64 << 30) - 1);
    assert_eq!(change("2").await["bytes"], 2_u64 << 30);
    assert_eq!(change("").await.get("bytes"), None);
    server.settle().await;
    assert!(limit().await.is_null(), "the platform sets none");
    let ada = server.ada().await;
    let hers = server.portal(Ask::new("PATCH", "/api/v1/spaces/home").bearer(&ada).json(&odd)).await;
    assert_eq!(hers.status, StatusCode::FORBIDDEN, "nobody but admins sets limits");
}

#[tokio::test]
async fn files_are_limited_by_the_forms_shown_in_them_and_let_go_by_an_empty_field() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let stars = "/admin/storage/spaces/stars";
    let limit = async || server.portal(Ask::get("/api/v1/spaces/stars").bearer(&admin)).await.json()["limit"].clone();
    let field = async || {
        let page = server.look_at(&admin, stars).await.body;
        let (_, rest) = page.split_once("name=\"limit_files\" type=\"text\" value=\"").expect("it is in the form");
        rest.split('"').next().unwrap().to_owned()
    };
    let both = [("name", "stars"), ("group", "physics"), ("limit_gib", "2"), ("limit_files", " 20000 ")];
    let made = server.fill_in(&admin, SPACES, &wish(&both)).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    assert_eq!(limit().await, serde_json::json!({"bytes": 2_u64 << 30, "files": 20_000, "state": "wanted"}));
    assert_eq!(field().await, "20000");
    let set = async |gib: &str, files: &str| {
        let changed = server.type_in(&admin, stars, &[("limit_gib", gib), ("limit_files", files)]).await;
        assert_eq!(changed.status, StatusCode::SEE_OTHER, "{}", changed.body);
        let limit = limit().await;
        (limit["bytes"].as_u64(), limit["files"].as_u64())
    };
    assert_eq!(set("", "20000").await, (None, Some(20_000)), "the other one stays");
    assert_eq!(set("", "7").await, (None, Some(7)));
    assert_eq!(set("3", "").await, (Some(3 << 30), None));
    assert_eq!(field().await, "");
}

#[tokio::test]
async fn what_a_program_sets_while_the_form_is_open_stays_where_the_form_was_not_touched() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let stars = "/admin/storage/spaces/stars";
    server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics")])).await;
    let opened = server.look_at(&admin, stars).await.body;
    let set = serde_json::json!({
        "limit_bytes": 5_u64 << 30,
        "limit_files": 700,
        "expires_at": "2027-01-31T17:30:00Z",
        "hint": "small_files",
    });
    let set = server.portal(Ask::new("PATCH", "/api/v1/spaces/stars").bearer(&admin).json(&set)).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.body);
    let seen = async || {
        let space = server.portal(Ask::get("/api/v1/spaces/stars").bearer(&admin)).await.json();
        let limit = (space["limit"]["bytes"].as_u64(), space["limit"]["files"].as_u64());
        let text = |field: &str| space[field].as_str().unwrap_or_default().to_owned();
        (limit, text("expires_at"), text("title"))
    };
    let end = "2027-01-31T17:30:00Z".to_owned();
    let titled = server.send_form(&admin, stars, &typed(&opened, &[("title", "Bright")])).await;
    assert_eq!(titled.status, StatusCode::SEE_OTHER, "{}", titled.body);
    assert_eq!(seen().await, ((Some(5 << 30), Some(700)), end.clone(), "Bright".to_owned()));
    let page = server.look_at(&admin, stars).await.body;
    assert!(page.contains("name=\"shown_hint\" value=\"small_files\""), "the hint stays as well: {page}");

    // The same page is still open elsewhere, with the title as it was.
    let limited = typed(&opened, &[("limit_gib", "3")]);
    assert_eq!(server.send_form(&admin, stars, &limited).await.status, StatusCode::SEE_OTHER);
    assert_eq!(seen().await, ((Some(3 << 30), Some(700)), end.clone(), "Bright".to_owned()));

    // A form that is refused comes back with what it was shown with at first.
    let refused = server.send_form(&admin, stars, &typed(&opened, &[("limit_gib", "much")])).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let mended = typed(&refused.body, &[("limit_gib", "4")]);
    assert_eq!(server.send_form(&admin, stars, &mended).await.status, StatusCode::SEE_OTHER);
    assert_eq!(seen().await, ((Some(4 << 30), Some(700)), end, "Bright".to_owned()));
}

#[tokio::test]
async fn an_end_that_was_not_touched_keeps_its_hour_and_one_that_was_emptied_is_never() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let wish = serde_json::json!({"root": "project", "name": "stars", "expires_at": "2027-01-31T17:30:00Z"});
    server.portal(Ask::new("POST", "/api/v1/spaces").bearer(&admin).json(&wish)).await;
    let end = async |day: &str| {
        server.type_in(&admin, "/admin/storage/spaces/stars", &[("expires_at", day)]).await;
        server.portal(Ask::get("/api/v1/spaces/stars").bearer(&admin)).await.json().get("expires_at").cloned()
    };
    assert_eq!(end("2027-01-31").await, Some("2027-01-31T17:30:00Z".into()));
    assert_eq!(end("").await, None);
    for _ in 0..2 {
        assert_eq!(end("2027-02-28").await, Some("2027-03-01T00:00:00Z".into()), "a day is over with its end, by UTC");
        let page = server.look_at(&admin, "/admin/storage/spaces/stars").await.body;
        assert!(page.contains("value=\"2027-02-28\"") && page.contains("24:00 UTC"), "{page}");
    }
}

#[tokio::test]
async fn everybodys_spaces_are_for_admins_and_their_forms_for_our_own_pages() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics")])).await;
    server.settle().await;
    for below in ["", "/stars", "/stars/retire", "/stars/policy"] {
        let path = format!("{SPACES}{below}");
        assert_eq!(server.look_at(&ada, &path).await.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(server.look_at(&admin, &path).await.status, StatusCode::OK, "{path}");
    }
    let changed = change(&[("title", "Mine")]);
    let made = wish(&[("name", "mine"), ("group", "physics")]);
    let forms: [(&str, &[(&str, &str)]); 4] =
        [("", &made), ("/stars", &changed), ("/stars/retire", &[]), ("/stars/restore", &[])];
    for (below, fields) in forms {
        let path = format!("{SPACES}{below}");
        assert_eq!(server.fill_in(&ada, &path, fields).await.status, StatusCode::NOT_FOUND, "{path}");
        let body = serde_html_form::to_string(fields).unwrap();
        let bare = Ask::new("POST", &path).with("content-type", FORM).cookie(&admin).body(body);
        let no_token = server.portal(bare.with("origin", PORTAL_ORIGIN)).await;
        assert_eq!(no_token.status, StatusCode::FORBIDDEN, "{path} without its token");
        let mut foreign = Ask::new("POST", &path).form(&admin, fields);
        foreign.headers.retain(|(name, _)| name != "origin");
        let foreign = server.portal(foreign.with("origin", "https://evil.example")).await;
        assert_eq!(foreign.status, StatusCode::FORBIDDEN, "{path} from elsewhere");
    }
    let spaces = server.test.app.spaces.all(&admin.actor, None, 50).await.unwrap().items;
    let stars = spaces.iter().find(|seen| seen.space.name.as_str() == "stars").unwrap();
    assert_eq!((stars.space.title.as_str(), stars.space.desired.as_str()), ("stars", "present"));
    assert!(!spaces.iter().any(|seen| seen.space.name.as_str() == "mine"), "nothing came of any of them");
}

#[tokio::test]
async fn files_that_are_to_be_removed_are_said_on_the_first_page_to_whose_they_are_alone() {
    let mut test = TestApp::new().await;
    let mut config = (*test.app.config).clone();
    let root = config.spaces.roots.iter_mut().find(|root| root.name.as_str() == "scratch").unwrap();
    root.old_files = Some(config::OldFiles { days: 30, warn_days: 14, dry_run: false });
    test.rebuild(config);
    let server = Server::serve(test).await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    server.test.app.making.add_personal(50).await.unwrap();
    server.settle().await;
    let (db, now) = (&server.test.app.db, server.test.clock.now());
    let space = db.space_by_name(&"scratch-ada".parse().unwrap()).await.unwrap().unwrap();
    let list = OldFilesList {
        at: now,
        before: now,
        days: 30,
        warn_days: 14,
        dry_run: false,
        told_at: Some(now),
        waited_s: 0,
        found: OldFilesFound { files: 7, bytes: 9, ..OldFilesFound::default() },
    };
    let state = OldFilesState { list: Some(list), ..OldFilesState::new(space.id) };
    assert!(db.put_old_files(&state, &[]).await.unwrap());
    for path in ["/", "/spaces", "/fragments/old-files"] {
        let page = server.look_at(&ada, path).await.body;
        assert!(page.contains("7 files of yours in Scratch"), "{path}: {page}");
        assert!(page.contains("href=\"/spaces/scratch-ada\""), "{path}: {page}");
        for other in [&grace, &admin] {
            assert!(!server.look_at(other, path).await.body.contains("files of yours"), "{path}");
        }
    }
    // Whether a group's space is hers cannot be known; what is in her own is hers all the same.
    server.fill_in(&admin, SPACES, &wish(&[("name", "stars"), ("group", "physics")])).await;
    server.settle().await;
    server.test.clock.advance_s(61);
    server.test.groups.go_away();
    assert_eq!(server.look_at(&ada, "/spaces").await.status, StatusCode::SERVICE_UNAVAILABLE);
    for path in ["/", "/fragments/old-files"] {
        let page = server.look_at(&ada, path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.contains("7 files of yours in Scratch"), "{path}: {}", page.body);
    }
}
