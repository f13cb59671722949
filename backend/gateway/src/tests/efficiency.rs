//! What sessions and runs held and used, from samples to what admins are shown of them by page and by token.

use eirene_core::{Resources, RunProgram, SessionState};
use eirene_monitoring::{Batch, Confinement, NodeName, Sample};
use jiff::SignedDuration;
use serde_json::json;

use super::*;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const EMPTY: &str =
    "No program was on its GPUs for 1 of 2 GPU hours. Where no GPU is needed, ask for none: it starts sooner.";
const MEMORY: &str = "It held 16 GiB of memory and needed 4 GiB at the most. 5 GiB a node would have been enough.";
const CPUS: &str = "Its 8 CPUs a node were in use for 12\u{a0}% of the time. 2 would have been enough.";

impl Server {
    /// A session or a run on `c1` that begins now, with eight CPUs, 16 GiB and two GPUs.
    async fn begun(&self, owner: &Person, name: &str, program: Option<RunProgram>) -> Session {
        let mut session = testing::session(owner.actor.user.username.as_str());
        session.owner = owner.actor.user.id;
        session.marker = Secret::generate().expose().to_owned();
        session.name = name.parse().unwrap();
        session.state = SessionState::Running;
        session.resources = Resources {
            partition: Some("gpu".parse().unwrap()),
            nodes: 1,
            cpus: 8,
            memory_mib: 16 * 1024,
            gpus: 2,
            gpu_type: None,
            walltime_min: 120,
        };
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(self.test.clock.now());
        session.program = program;
        assert!(matches!(self.test.app.db.insert_session(&session, Start::default()).await.unwrap(), Inserted::New));
        session
    }

    /// An hour in which all of these use one CPU, 4 GiB and one of their GPUs; nothing is on the other.
    async fn an_hour_of(&self, sessions: &[&Session]) {
        let begin = self.test.clock.now();
        let mut all: Vec<_> = sessions.iter().map(|session| self.test.app.samples.ingest(session.id)).collect();
        for count in 0..720_i32 {
            self.test.clock.advance_s(5);
            let told = [
                ("cpu_seconds", 5.0 * f64::from(count)),
                ("memory_peak_bytes", 4.0 * GIB),
                ("gpu_util/0", 0.8),
                ("gpu_util/1", 0.0),
                ("gpu_processes/0", 1.0),
                ("gpu_processes/1", 0.0),
            ];
            let samples = told.map(|(name, value)| Sample { series: name.parse().unwrap(), value });
            let batch = Batch {
                node: NodeName::try_from("c1").unwrap(),
                at: begin + SignedDuration::from_millis(2500 + 5000 * i64::from(count)),
                confinement: Confinement::CgroupV2,
                held: None,
                samples: samples.into(),
            };
            let text = String::from_utf8(batch.write().remove(0)).unwrap();
            for ingest in &mut all {
                ingest.take(&text).await;
            }
        }
        assert_eq!(self.test.app.efficiency.measure_some(10).await.unwrap(), sessions.len());
    }
}

/// What is read in a piece of a page, in its order.
fn texts(html: &str) -> Vec<&str> {
    let parts = html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text).trim());
    parts.filter(|text| !text.is_empty()).collect()
}

/// The row of the report that is called `name`.
fn row<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("<th scope=\"row\" class=\"wrap\">{name}</th>");
    let (_, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {name}: {page}"));
    texts(rest.split("</tr>").next().unwrap())
}

#[tokio::test]
async fn the_page_has_a_row_for_each_person_what_is_worth_a_look_and_how_its_sums_are_made() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.begun(&ada, "<b>left", None).await;
    let run = server.begun(&grace, "trains", Some(testing::program())).await;
    server.an_hour_of(&[&session, &run]).await;
    let admin = server.admin().await;
    let page = async |path: &str| {
        let answer = server.portal(Ask::get(path).page().cookie(&admin)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    };
    let persons = page("/admin/efficiency").await;
    // Jobs, GPU hours and how much they computed, idle ones, and hours of CPUs and memory with what was used of them.
    let one = ["1", "2", "40\u{a0}% computing", "1", "1 without a program", "8", "12\u{a0}% used", "16"];
    let needed = "25\u{a0}% needed";
    for name in ["ada", "grace"] {
        assert_eq!(row(&persons, name), [&one[..], &[needed]].concat(), "{name}");
    }
    let both = ["2", "4", "40\u{a0}% computing", "2", "2 without a program", "16", "12\u{a0}% used", "32", needed];
    assert_eq!(row(&persons, "All"), both);
    let partitions = page("/admin/efficiency?days=7&by=partition").await;
    assert_eq!(row(&partitions, "gpu"), both);
    assert!(!partitions.contains(">ada</th>"), "{partitions}");

    for shown in [
        format!("<a href=\"/sessions/{}\">&lt;b&gt;left</a>", session.id),
        format!("<a href=\"/runs/{}\">trains</a>", run.id),
        "ada, in gpu".to_owned(),
        "grace, in gpu".to_owned(),
    ] {
        assert_eq!(persons.matches(&shown).count(), 1, "{shown}: {persons}");
    }
    for advice in [EMPTY, MEMORY, CPUS] {
        assert_eq!(persons.matches(advice).count(), 2, "{advice}: {persons}");
    }
    let (_, sums) = persons.split_once("<summary>How these sums are made</summary>").expect("it is said how");
    let sums = texts(sums.split("</details>").next().unwrap());
    assert_eq!(sums.len(), 8, "nothing is unknown of anybody: {sums:?}");
    assert!(sums.contains(&"Idle are stretches of 30 minutes or more below 5\u{a0}%."), "{sums:?}");
}

#[tokio::test]
async fn programs_get_the_same_sums_and_examples_and_each_says_what_it_wasted() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.begun(&ada, "left", None).await;
    let run = server.begun(&grace, "trains", Some(testing::program())).await;
    server.an_hour_of(&[&session, &run]).await;
    let admin = server.admin().await;
    let get = async |person: &Person, path: &str| {
        let answer = server.portal(Ask::get(path).bearer(person)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.json()
    };
    let report = get(&admin, "/api/v1/efficiency").await;
    let gpu = json!({"held_s": 7200, "known_s": 7200, "busy_s": 2880, "idle_s": 3600, "empty_s": 3600});
    let groups = report["groups"].as_array().unwrap();
    let mut names: Vec<&str> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ada", "grace"]);
    for group in groups {
        assert_eq!((&group["jobs"], &group["unknown_jobs"], &group["gpu"]), (&json!(1), &json!(0), &gpu));
    }
    let examples = report["examples"].as_array().unwrap();
    let wastes: Vec<&Value> = examples.iter().map(|example| &example["waste"]).collect();
    assert_eq!(wastes, ["gpu", "gpu", "memory", "memory", "cpu", "cpu"]);
    for (job, kind, owner, place) in [(&session, "session", &ada, "sessions"), (&run, "run", &grace, "runs")] {
        let id = job.id.to_string();
        let own: Vec<&Value> = examples.iter().filter(|example| example["id"] == id.as_str()).collect();
        assert_eq!(own.len(), 3, "once for each sort of waste: {report}");
        let usage = get(owner, &format!("/api/v1/{place}/{id}/efficiency")).await;
        for example in own {
            let said = ["kind", "name", "owner", "partition"].map(|field| example[field].as_str().unwrap());
            assert_eq!(said, [kind, job.name.as_str(), job.owner_name.as_str(), "gpu"]);
            assert_eq!(example["usage"], usage, "what its owner is told");
        }
        assert_eq!((&usage["complete"], &usage["wall_s"], &usage["gpu"]), (&json!(false), &json!(3600), &gpu));
        assert_eq!(usage["cpu_s"], json!({"held": 8 * 3600, "used": 719 * 5}));
        assert_eq!(usage["memory_mib"], json!({"held": 16 * 1024, "used": 4 * 1024}));
        assert_eq!(usage["advice"], json!([EMPTY, MEMORY, CPUS]));
    }
}
