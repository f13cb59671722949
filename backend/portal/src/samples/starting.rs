//! The cluster, the first page and the start forms.

use std::sync::Arc;

use eirene_core::account::Role;
use eirene_core::id::ImageId;
use eirene_core::image::Image;
use eirene_core::scheduler::{Node, NodeGpus, Partition, PartitionAccess};
use eirene_core::scratch::ScratchKind;
use eirene_core::session::{Resources, SessionState};
use eirene_services::cluster::forecast::FreeFrom;
use eirene_services::cluster::overview::Seen as SeenCluster;
use eirene_services::cluster::room::{Room, Short};
use eirene_services::cluster::{ClusterView, GpuSupply};
use eirene_services::error::FieldError;
use eirene_services::samples::{ClusterPast, Figure};
use eirene_services::spaces::HomeTrouble;
use eirene_words::{say, say_with, words};
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::views::FormError;
use crate::views::cluster::{FreeFragment, FreeView};
use crate::views::cluster_page::{ClusterFragment, ClusterPage, ClusterPart};
use crate::views::layout::{Notice, Place, Tone};
use crate::views::node_map::Measure;
use crate::views::run::{LikeView, RunInput, StartRunPage};
use crate::views::space::SpacesNotice;
use crate::views::start::{DashboardPage, Ground, HomeNotice, SeenSpace, Sees, StartInput, StartPage};
use crate::views::verdict::{Verdict, VerdictFragment};

impl Samples {
    pub(crate) fn nodes() -> Result<Vec<Node>> {
        let node = |name: &str, gpu: &str, gpus_used: u32, cpus_used: u32| -> Result<Node> {
            Ok(Node {
                name: name.parse()?,
                available: true,
                state: "mixed".to_owned(),
                reason: None,
                cpus: 8,
                cpus_allocated: cpus_used,
                cpu_load: Some(cpus_used * 55),
                memory_mib: 16000,
                memory_allocated_mib: u64::from(cpus_used) * 2000,
                gpus: vec![NodeGpus { gpu_type: gpu.to_owned(), total: 2, allocated: gpus_used }],
                has_counted_gpus: true,
                is_planned: false,
                partitions: vec!["main".parse()?],
            })
        };
        let mut down = node("gpu-node-with-a-rather-long-name-017", "", 0, 0)?;
        down.available = false;
        "down".clone_into(&mut down.state);
        down.reason = Some("not responding since the power cut".to_owned());
        down.gpus = vec![NodeGpus { gpu_type: "h100".to_owned(), total: 40, allocated: 0 }];
        let mut plain = node("c3", "", 0, 0)?;
        plain.gpus.clear();
        plain.cpus = 128;
        "idle".clone_into(&mut plain.state);
        Ok(vec![node("c1", "a100", 2, 6)?, node("c2", "h100", 1, 2)?, plain, down])
    }

    pub(crate) fn partitions() -> Result<Vec<Partition>> {
        let partition = |name: &str, is_default, longest| -> Result<Partition> {
            Ok(Partition {
                name: name.parse()?,
                is_default,
                available: true,
                max_walltime_min: longest,
                max_nodes: None,
                nodes: vec!["c1".parse()?, "c2".parse()?],
                access: PartitionAccess::default(),
            })
        };
        Ok(vec![
            partition("main", true, Some(480))?,
            partition("long", false, Some(2880))?,
            Partition {
                access: PartitionAccess { by_account: true, ..PartitionAccess::default() },
                ..partition("free", false, None)?
            },
        ])
    }

    /// The nodes of the other pages, or so many that they are not named; with GPUs that come free soon, later, or not.
    fn cluster(&self, many: bool) -> Result<ClusterView> {
        let few = Self::nodes()?;
        let mut nodes = few.clone();
        for number in 0..if many { 500_u32 } else { 0 } {
            let mut node = few.get((number % 4) as usize).cloned().unwrap_or_else(|| few[0].clone());
            node.name = format!("gpu-{number:03}").parse()?;
            for gpus in &mut node.gpus {
                gpus.allocated = number % (gpus.total + 1);
            }
            node.cpus_allocated = number % (node.cpus + 1);
            node.memory_allocated_mib = 0;
            node.cpu_load = (number % 7 > 0).then_some(number * 97 % (node.cpus * 130));
            if number % 23 == 0 {
                (node.available, node.reason) = (false, Some(HOSTILE.to_owned()));
                "draining".clone_into(&mut node.state);
            }
            nodes.push(node);
        }
        let from = |hours, free| FreeFrom { at: self.now + SignedDuration::from_hours(hours), free };
        let supply = |gpu_type: &str, total, free, forecast, waiting| GpuSupply {
            gpu_type: gpu_type.to_owned(),
            total,
            free,
            reserved: free / 4,
            forecast,
            waiting,
        };
        Ok(ClusterView {
            at: Some(self.now),
            reachable: !many,
            partitions: Arc::new(Self::partitions()?),
            gpu_types: vec![
                supply("a100", 8, 1, vec![from(2, 3), from(5, 4), from(23, 8)], 12),
                supply("h100", 16, 0, vec![from(7, 2), from(100, 16)], 1),
                supply("mi300", 4, 4, vec![], 0),
            ],
            nodes: Arc::new(nodes),
            queue: Arc::default(),
        })
    }

    /// The cluster to a person with something that runs and something that waits, of which she sees a part; or all of it, where nothing waits on
    /// the large one.
    fn seen_cluster(&self, many: bool, is_operator: bool) -> Result<SeenCluster> {
        let cluster = self.cluster(many)?;
        let mut running = self.session("Thesis, chapter 3", SessionState::Running)?;
        running.nodes = cluster.nodes.iter().take(2).map(|node| node.name.clone()).collect();
        let mut hostile = self.session(HOSTILE, SessionState::Queued)?;
        hostile.resources.partition = Some("main".parse()?);
        let waiting = if many { vec![] } else { vec![self.queued()?, hostile] };
        Ok(SeenCluster {
            is_operator,
            left_out: if is_operator { 0 } else { 12 },
            gpus_busy: cluster.nodes.iter().take(2).map(|node| (node.name.clone(), 0.42)).collect(),
            live: std::iter::once(running).chain(waiting).collect(),
            cluster,
        })
    }

    pub(super) fn starting(&mut self) -> Result<()> {
        let words = words();
        let cluster = ClusterView { nodes: Arc::new(Self::nodes()?), reachable: true, ..self.cluster(false)? };
        let images = [Image {
            id: ImageId::generate(),
            name: "jupyter".parse()?,
            description: "JupyterLab 4 with NumPy and Matplotlib".to_owned(),
            path: "/srv/eirene/images/jupyter.sif".to_owned(),
            sha256: "0".repeat(64),
            size_bytes: 1,
            apps: vec!["jupyterlab".parse()?],
            created_at: self.now,
        }];
        let scratch = [ScratchKind::Node, ScratchKind::Beeond];
        let projects = ["physics".parse()?, "teaching".parse()?];
        let ground = Ground { words, images: &images, cluster: &cluster, scratch: &scratch, projects: &projects };
        let key = || "sample-key".to_owned();
        let free = FreeView::new(words, &cluster.nodes, Some(self.now), true);
        let (live, earlier) = self.views()?;
        for (name, role, live, earlier, notice) in [
            ("dashboard", Role::Researcher, live, earlier, Some("notice.stopping")),
            ("dashboard-empty", Role::Admin, Vec::new(), Vec::new(), None),
        ] {
            let notice = notice.map(|key| Notice { tone: Tone::Good, text: words.get(key) });
            let layout = self.layout(Place::Dashboard, &words.get("dashboard.title"), role)?.with_notice(notice);
            let presets = ground.presets("", &key);
            self.add(
                name,
                &DashboardPage {
                    layout: layout.live("/live/events", 15),
                    spaces: SpacesNotice::of(words, &if live.is_empty() { Vec::new() } else { self.seen()? }),
                    live,
                    promised: if earlier.is_empty() { Vec::new() } else { self.promised()? },
                    earlier,
                    free: free.clone(),
                    presets,
                },
            )?;
        }

        for (name, many, is_operator, by) in [
            ("cluster", false, false, Measure::Allocation),
            ("cluster-load", false, false, Measure::Load),
            ("cluster-gpu", false, true, Measure::Gpu),
            ("cluster-health", false, true, Measure::Health),
            ("cluster-large", true, false, Measure::Allocation),
            ("cluster-large-load", true, false, Measure::Load),
            ("cluster-large-health", true, true, Measure::Health),
        ] {
            let seen = self.seen_cluster(many, is_operator)?;
            // On the large one nobody looked for a while.
            let value = |figure: Figure, place: usize| match figure {
                Figure::GpusTotal => Some(64.0),
                _ if many && (40..52).contains(&place) => None,
                _ => Some((place as f64 / 9.0 + f64::from(figure as u8)).sin().abs() * 60.0),
            };
            let past = ClusterPast::new(0, 900_000, 96, value);
            let part = ClusterPart::new(words, &seen, by, Some(&past), self.now);
            let role = if is_operator { Role::Admin } else { Role::Researcher };
            self.add(
                name,
                &ClusterPage {
                    layout: self.layout(Place::Cluster, &words.get("cluster_page.title"), role)?,
                    fragment_href: format!("/fragments/cluster{}", by.query()),
                    cluster: part.clone(),
                },
            )?;
            if name == "cluster" {
                self.add("fragment-cluster", &ClusterFragment { cluster: part })?;
            }
        }

        let input = ground.with_defaults(StartInput::from_resources(&self.queued()?.resources));
        let with_scratch = StartInput {
            scratch: ScratchKind::Node.to_string(),
            scratch_gib: "200".to_owned(),
            stage_in: format!("home:data/train=train\n{HOSTILE}"),
            stage_out: "results=home:results/today".to_owned(),
            ..input.clone()
        };
        let errors = vec![
            FormError::from_service(
                words,
                &FieldError::new("cpus", say_with("fits.cpus", &[("partition", "main"), ("most", "8")])),
            ),
            FormError::new(words, "nodes", words.get("start.error.number")),
            FormError::new(words, "stage_in", words.fill("start.error.stage_in", &[("line", HOSTILE)])),
            FormError::new(words, "", HOSTILE),
        ];
        let resources = self.queued()?.resources;
        let now = self.now;
        let possible = |room: Room| Verdict::possible(words, &room, &resources, Some(now));
        let later = Room::Later {
            short: Some(Short::Cpus(1)),
            fits: Some(Resources { cpus: 1, ..resources.clone() }),
            from: Some(now + SignedDuration::from_mins(79)),
        };
        let cases = [
            ("start", possible(Room::Now), Vec::new(), true),
            ("start-later", possible(later), Vec::new(), true),
            ("start-until", possible(Room::Until { walltime_min: 20 }), Vec::new(), true),
            ("start-errors", Verdict::unknown(words), errors, true),
            ("start-unknown", Verdict::unknown(words), Vec::new(), true),
            ("start-no-images", Verdict::unknown(words), Vec::new(), false),
            ("start-home-full", possible(Room::Now), Vec::new(), true),
            ("start-groups-away", possible(Room::Now), Vec::new(), true),
        ];
        let space = |place: &str, title: &str, read_only| SeenSpace {
            place: place.to_owned(),
            title: title.to_owned(),
            href: "/spaces/imagenet".to_owned(),
            read_only,
        };
        let sees = Sees {
            known: true,
            spaces: vec![
                space("/data/imagenet", "A shared collection of pictures with a rather long title", true),
                space("/project/<b>physics</b>", HOSTILE, false),
                space("/scratch", "Scratch", false),
            ],
        };
        for (name, verdict, errors, has_images) in cases {
            let free = if name == "start-unknown" { FreeView::new(words, &[], None, false) } else { free.clone() };
            let page = StartPage {
                layout: self.layout(Place::Start, &words.get("start.page_title"), Role::Researcher)?,
                form: ground.form(if name == "start-errors" { &with_scratch } else { &input }, &errors),
                presets: ground.presets("gpu-a100", &key),
                free,
                verdict: errors.is_empty().then_some(verdict),
                errors,
                has_images,
                home: (name == "start-home-full").then(|| HomeNotice::new(words, HomeTrouble::Full)),
                sees: if name == "start-groups-away" { Sees::new(None) } else { sees.clone() },
            };
            self.add(name, &page)?;
        }
        let mut earlier = self.run("train.py", SessionState::Ended, Some(8))?;
        earlier.scratch = Some(serde_json::from_str(
            r#"{"kind": "beeond", "stage_in": [{"from": "imagenet:train", "to": "train"}], "stage_out": [{"from": "", "to": "home:<b>out</b>", "on": "success"}]}"#,
        )?);
        let run = RunInput::again(&earlier);
        let wrong = vec![
            FormError::from_service(words, &FieldError::new("file", say("wrong.run_file"))),
            FormError::from_service(words, &FieldError::new("arguments", say("wrong.run_arguments"))),
            FormError::from_service(words, &FieldError::new("ranks", say("wrong.notebook_ranks"))),
        ];
        let mut session = self.session(HOSTILE, SessionState::Running)?;
        session.image = "retired-since".parse()?;
        let alike = RunInput::like(&session);
        let cases = [
            ("run-new", &run, None, Vec::new(), true),
            ("run-new-errors", &run, None, wrong, true),
            ("run-new-no-images", &run, None, vec![], false),
            ("run-new-like", &alike, Some(&session), vec![], true),
            ("run-new-home-full", &run, None, vec![], true),
        ];
        for (name, run, like, errors, has_images) in cases {
            let form = ground.form(&ground.with_defaults(run.size()), &errors);
            let page = StartRunPage {
                layout: self.layout(Place::Runs, &words.get("start_run.page_title"), Role::Researcher)?,
                form: if like.is_some() { form.with_image(&session.image) } else { form },
                run: run.fields(&errors),
                like: like.map(LikeView::new),
                free: free.clone(),
                errors,
                has_images,
                home: (name == "run-new-home-full").then(|| HomeNotice::new(words, HomeTrouble::Full)),
                sees: sees.clone(),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-verdict", &VerdictFragment { verdict: possible(Room::Now) })?;
        self.add("fragment-free", &FreeFragment { free })?;
        Ok(())
    }
}
