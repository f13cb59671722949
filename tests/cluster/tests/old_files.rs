//! What becomes of old files on the real cluster: the portal has the launcher start the file process of whose they are, which lists them, and removes
//! by that list what still is what it was. Days have to pass in between: in the portal's row they have.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::{Cli, Said};
use eirene_cluster_tests::demo::{Restore, daemon, database, exec};
use eirene_cluster_tests::portal::{NOTICE, Person};
use eirene_cluster_tests::until;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const SCRATCH: &str = "/shared/scratch/scratch-ada";

/// The portal has watched the time for two days. Nobody can set when a file's attributes last changed, so one is old here after no day at all: in the
/// next second.
const WATCHED: &str = "INSERT INTO old_files (space_id, exempt, days, seen_at, steady_s, version)
    SELECT id, FALSE, 0, (unixepoch() - 60) * 1000000, 2 * 86400, 1 FROM spaces
    WHERE name = 'scratch-ada' AND state <> 'gone'";
/// What is listed is so by the rule of `deploy/demo/eirened.toml`, and all but so many seconds of its 14 days are over.
const WAITED: &str = "UPDATE old_files
    SET days = NULL, list = json_set(list, '$.days', 30, '$.waited_s', 14 * 86400 - $1), version = version + 1
    WHERE space_id = (SELECT id FROM spaces WHERE name = 'scratch-ada' AND state <> 'gone')";
const SEEN: &str = "SELECT seen_at FROM old_files
    WHERE space_id = (SELECT id FROM spaces WHERE name = 'scratch-ada' AND state <> 'gone')";
const FORGET: &str = "DELETE FROM old_files
    WHERE space_id = (SELECT id FROM spaces WHERE name = 'scratch-ada' AND state <> 'gone')";
const LAST_EVENT: &str = "SELECT COALESCE(MAX(id), 0) FROM events";
const NOTICES: &str = "SELECT data FROM events
    WHERE id > $1 AND kind = 'notice' AND owner_id = (SELECT id FROM users WHERE username = 'ada') ORDER BY id";

/// Puts what is in the scratch `$1` aside, to `$3`: it would be old, too; what a test that was killed has left there comes back first. `$2` is out of
/// it, hers, and has a file of somebody else's.
const MAKE_ROOM: &str = r#"set -e
for left in /shared/aside-old-*; do
    [ ! -d "$left" ] || { find "$left" -mindepth 1 -maxdepth 1 -exec mv -n -t "$1" -- {} +; rmdir --ignore-fail-on-non-empty "$left"; }
done
install -d -m 700 "$3"
find "$1" -mindepth 1 -maxdepth 1 ! -name .eirene-trash -exec mv -t "$3" -- {} +
install -d -o ada -g ada -m 755 "$2"
echo hers > "$2/graces" && chown grace:grace "$2/graces" && touch -d 2020-01-01 "$2/graces""#;
/// What ada has: six files that are old, one of which has another name elsewhere; one of tomorrow; and a link.
const FILL: &str = r#"set -e
mkdir -p "$1/deep" "$1/swapped" "$2/swapped" && cd "$1"
for name in deep/old used replaced swapped/file removed "$2/linked" "$2/swapped/file"; do
    echo old > "$name" && touch -d 2020-01-01 "$name"
done
ln "$2/linked" hard
ln -s "$2/graces" link && touch -h -d 2020-01-01 link
echo late > future && touch -d tomorrow future"#;
/// What somebody else has there; and all of it is older than this second.
const ADD_ANOTHER_S: &str = r#"set -e
echo hers > "$1/graces" && chown grace:grace "$1/graces" && touch -d 2020-01-01 "$1/graces"
until [ "$(date +%s)" -gt "$(stat -c %Z "$1/graces")" ]; do sleep 0.1; done"#;
/// After it was listed: one is used, one is removed by ada herself, and where two others were, links lead to what is not in her scratch.
const GO_ON: &str = r#"set -e
cd "$1" && touch used && rm removed && echo new > new
rm replaced && ln -s "$2/graces" replaced
mv swapped moved && ln -s "$2/swapped" swapped"#;
/// As it was before, `$4` being what was put aside.
const BACK: &str = r#"rm -rf "$2" "$3"
[ ! -d "$4" ] || { find "$4" -mindepth 1 -maxdepth 1 -exec mv -t "$1" -- {} + && rmdir "$4"; }"#;

/// What of this test is where.
struct Places {
    /// Below the scratch.
    inside: String,
    /// Beside it.
    outside: String,
    _back: Restore,
}

impl Places {
    async fn fill(name: &str) -> anyhow::Result<Self> {
        let (inside, outside) = (format!("{SCRATCH}/{name}"), format!("/shared/outside-{name}"));
        let aside = format!("/shared/aside-{name}");
        let back = ["exec", "c1", "sh", "-c", BACK, "sh", SCRATCH, &inside, &outside, &aside];
        let back = Restore::with(&[&back]);
        exec("c1", "root", &["sh", "-c", MAKE_ROOM, "sh", SCRATCH, &outside, &aside]).await?;
        exec("c1", "ada", &["sh", "-c", FILL, "sh", &inside, &outside]).await?;
        exec("c1", "root", &["sh", "-c", ADD_ANOTHER_S, "sh", &inside]).await?;
        Ok(Self { inside, outside, _back: back })
    }

    /// What is inside: names, and what each is.
    async fn names(&self) -> anyhow::Result<Vec<String>> {
        found(&self.inside, r"%P %y\n").await
    }

    /// What is outside: all that can be told without reading it.
    async fn beside(&self) -> anyhow::Result<Vec<String>> {
        found(&self.outside, r"%P %y %m %U %s %T@\n").await
    }

    /// How many names the file has that is inside and outside.
    async fn links(&self) -> anyhow::Result<String> {
        exec("c2", "root", &["stat", "-c", "%h", &format!("{}/linked", self.outside)]).await
    }
}

async fn found(directory: &str, what: &str) -> anyhow::Result<Vec<String>> {
    let text = exec("c2", "root", &["find", directory, "-mindepth", "1", "-printf", what]).await?;
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// Changes the row of ada's scratch; gives how many there were.
async fn change(statement: &'static str) -> anyhow::Result<u64> {
    Ok(sqlx::query(statement).execute(&mut database().await?).await?.rows_affected())
}

async fn has_waited_but(seconds: i64) -> anyhow::Result<()> {
    sqlx::query(WAITED).bind(seconds).execute(&mut database().await?).await?;
    Ok(())
}

/// When the portal looked last, microseconds.
async fn seen_at() -> anyhow::Result<i64> {
    let (at,): (i64,) = sqlx::query_as(SEEN).fetch_one(&mut database().await?).await?;
    Ok(at)
}

/// Has the portal look at old files: it does so when it starts, and once an hour.
async fn look() -> anyhow::Result<()> {
    daemon("portal", "eirened", "kill").await
}

async fn report(ada: &Person) -> anyhow::Result<Value> {
    let (status, report) = ada.call(Method::GET, "spaces/scratch/old-files", None).await?;
    ensure!(status == StatusCode::OK, "{status} {report}");
    Ok(report)
}

/// The report once it is so and nothing is under way; a portal that was killed is away for a moment.
async fn becomes(ada: &Person, what: &str, is_so: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    until(what, NOTICE, || async {
        let report = report(ada).await?;
        ensure!(report["running"] == false && is_so(&report), "{report}");
        Ok(Some(report))
    })
    .await
}

/// Has what is old listed, and leaves it an hour.
async fn listed(ada: &Person) -> anyhow::Result<Value> {
    change(FORGET).await?;
    ensure!(change(WATCHED).await? == 1, "ada has no scratch");
    look().await?;
    let listed = becomes(ada, "old files are listed and told", |report| report["state"] == "waiting").await;
    // Whatever came of it: nothing is to be old after no day any longer.
    has_waited_but(3600).await?;
    listed?;
    report(ada).await
}

/// What ada was told of old files since that event.
async fn told(since: i64) -> anyhow::Result<Vec<Value>> {
    let rows: Vec<(String,)> = sqlx::query_as(NOTICES).bind(since).fetch_all(&mut database().await?).await?;
    let notices: Vec<Value> = rows.iter().map(|(data,)| serde_json::from_str(data)).collect::<Result<_, _>>()?;
    let is_of_old = |notice: &Value| notice["code"].as_str().is_some_and(|code| code.starts_with("old_files"));
    Ok(notices.into_iter().filter(is_of_old).collect())
}

/// Everybody says the same of what is promised, and names only to whose they are.
async fn is_promised(hers: &Cli, admin: &Cli, name: &str, report: &Value) -> anyhow::Result<()> {
    let list = &report["list"];
    let sums = ["files", "saved", "skipped"].map(|key| list[key].as_u64());
    assert_eq!(sums, [Some(6), Some(1), Some(0)], "{report}");
    let examples = list["examples"].as_array().context("examples")?;
    let mut paths: Vec<_> = examples.iter().filter_map(|file| file["path"].as_str()).collect();
    paths.sort_unstable();
    let old = ["deep/old", "hard", "removed", "replaced", "swapped/file", "used"];
    assert_eq!(paths, old.map(|path| format!("{name}/{path}")));
    let at = |key: &str| anyhow::Ok(report[key].as_str().context("a time")?.parse::<Timestamp>()?);
    assert_eq!(at("goes_at")?, at("told_at")? + SignedDuration::from_hours(1), "{report}");
    let rule = ["days", "warn_days", "dry_run"].map(|key| report[key].clone());
    assert_eq!(rule, [json!(30), json!(14), json!(false)], "{report}");
    let words = ["admin", "space", "old-files", "scratch"];
    assert_eq!(&hers.json(&words).await?, report);
    let Said { out, err, .. } = hers.good(&words).await?;
    ensure!(err.contains("6 files are old and wait to be removed") && out.contains("deep/old"), "{err}{out}");
    let seen = admin.json(&["admin", "space", "old-files", "scratch-ada"]).await?;
    assert_eq!((&seen["list"]["files"], &seen["list"]["examples"]), (&json!(6), &json!([])), "{seen}");
    Ok(())
}

#[tokio::test]
async fn old_files_are_promised_and_removed_if_they_still_are_what_was_listed() -> anyhow::Result<()> {
    let (mut ada, hers) = (Person::sign_in("ada").await?, Cli::sign_in("ada", &[]).await?);
    let (operator, admin) = (Person::sign_in("admin").await?, Cli::sign_in("admin", &["--admin"]).await?);
    ada.stop_all().await?;
    ada.token = hers.token()?;
    until("ada's own scratch is there", NOTICE, || async {
        let (_, space) = ada.call(Method::GET, "spaces/scratch", None).await?;
        Ok((space["state"] == "present").then_some(()))
    })
    .await?;
    let name = format!("old-{}", uuid::Uuid::now_v7());
    let places = Places::fill(&name).await?;
    let (names, beside) = (places.names().await?, places.beside().await?);
    assert_eq!(places.links().await?, "2\n");
    let (last_event,): (i64,) = sqlx::query_as(LAST_EVENT).fetch_one(&mut database().await?).await?;

    let promised = listed(&ada).await?;
    is_promised(&hers, &admin, &name, &promised).await?;
    let notices = told(last_event).await?;
    assert_eq!(notices.len(), 1, "{notices:?}");
    let told_of = ["code", "space", "files", "days"].map(|key| notices[0][key].clone());
    assert_eq!(told_of, [json!("old_files"), json!("scratch-ada"), json!(6), json!(14)]);

    // An hour before its time nothing goes.
    let before = seen_at().await?;
    look().await?;
    let still = until("it was looked again", NOTICE, || async {
        let report = report(&ada).await?;
        Ok((seen_at().await? > before && report["running"] == false).then_some(report))
    })
    .await?;
    assert_eq!(still["state"], "waiting", "{still}");
    assert_eq!(places.names().await?, names);

    exec("c2", "ada", &["sh", "-c", GO_ON, "sh", &places.inside, &places.outside]).await?;
    has_waited_but(0).await?;
    look().await?;
    let after = becomes(&ada, "old files are removed", |report| report["removed"].is_object()).await?;
    // A file that has another name elsewhere frees nothing.
    let sums = ["files", "bytes", "kept", "gone", "failed"].map(|key| after["removed"][key].as_u64());
    assert_eq!(sums, [2, 4, 3, 1, 0].map(Some), "{after}");
    let left = [
        "deep d",
        "future f",
        "graces f",
        "link l",
        "moved d",
        "moved/file f",
        "new f",
        "replaced l",
        "swapped l",
        "used f",
    ];
    assert_eq!(places.names().await?, left);
    assert_eq!(places.beside().await?, beside, "nothing that a link leads to");
    assert_eq!(places.links().await?, "1\n", "a hard link takes one name along and not the file");
    assert_eq!(hers.json(&["admin", "space", "old-files", "scratch"]).await?, after);

    let notices = told(last_event).await?;
    let last = notices.last().context("a notice")?;
    assert_eq!((notices.len(), &last["code"], &last["files"]), (2, &json!("old_files_removed"), &json!(2)));
    let (_, log) = operator.call(Method::GET, "audit?action=space.old_files_remove&limit=2", None).await?;
    let of = |number: usize| ["actor", "target", "outcome"].map(|key| log["items"][number][key].clone());
    assert_eq!(of(0), [json!("system:old_files"), json!("scratch-ada"), json!("ok")], "{log}");
    assert_eq!(of(1), [json!("system:old_files"), json!("scratch-ada"), json!("begun")], "{log}");
    let details = ["files", "kept", "gone"].map(|key| log["items"][0]["details"][key].clone());
    assert_eq!(details, [json!(2), json!(3), json!(1)], "{log}");
    ensure!(!log.to_string().contains("deep"), "no name of a file: {log}");
    change(FORGET).await.map(drop)
}
