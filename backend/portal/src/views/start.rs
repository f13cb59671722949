//! The dashboard and the start form: sizes to choose from and sensible defaults.

use eirene_core::image::Image;
use eirene_core::name::{GpuType, ImageName, PartitionName, ProjectName};
use eirene_core::scratch::ScratchKind;
use eirene_core::session::{Resources, Session};
use eirene_services::cluster::ClusterView;
use eirene_services::sessions::defaults;
use eirene_services::sessions::out_of_range;
use eirene_services::spaces::HomeTrouble;
use eirene_services::spaces::in_sessions::{InSession, InSessions};
use eirene_words::Words;
use serde::{Deserialize, Serialize};

use super::cluster::{self, FreeView};
use super::layout::{Layout, Tone};
use super::old_files::PromisedView;
use super::presets::PresetView;
use super::session::{SessionView, app_label, sentence};
use super::space::SpacesNotice;
use super::verdict::Verdict;
use super::{Choice, Field, FormError, format};
use crate::pages::Page;

/// The start form as it is sent: text as typed, so that it can be shown again.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StartInput {
    /// What to call it; empty for a name of ours.
    pub(crate) name: String,
    /// App.
    pub(crate) app: String,
    /// Image.
    pub(crate) image: String,
    /// Project; empty for the person's default account.
    pub(crate) project: String,
    /// Partition; empty for the default.
    pub(crate) partition: String,
    /// Number of nodes.
    pub(crate) nodes: String,
    /// CPUs per node.
    pub(crate) cpus: String,
    /// Memory per node, GiB, decimals allowed.
    pub(crate) memory_gib: String,
    /// GPUs per node, when a type or any is chosen.
    pub(crate) gpus: String,
    /// `none`, `any`, or a type.
    pub(crate) gpu_type: String,
    /// Hours of the longest time.
    pub(crate) hours: String,
    /// Minutes of the longest time.
    pub(crate) minutes: String,
    /// What the fast scratch is made of; empty for none.
    pub(crate) scratch: String,
    /// Room that each node must have there, GiB; empty for any.
    pub(crate) scratch_gib: String,
    /// What is copied there first, one on a line.
    pub(crate) stage_in: String,
    /// What is copied back at the end, one on a line.
    pub(crate) stage_out: String,
    /// The same, only after a good end.
    pub(crate) stage_out_success: String,
    /// What makes two clicks one start.
    pub(crate) key: String,
}

/// Fields of the seldom needed part.
const MORE: [&str; 8] =
    ["project", "partition", "nodes", "scratch", "scratch_gib", "stage_in", "stage_out", "stage_out_success"];

/// No GPU, in the form.
pub(crate) const NO_GPU: &str = "none";
/// A GPU of any type, in the form.
pub(crate) const ANY_GPU: &str = "any";

impl StartInput {
    /// The form for these resources.
    pub(crate) fn from_resources(resources: &Resources) -> Self {
        let gpu_type = match (&resources.gpu_type, resources.gpus) {
            (_, 0) => NO_GPU.to_owned(),
            (Some(kind), _) => kind.to_string(),
            (None, _) => ANY_GPU.to_owned(),
        };
        Self {
            partition: resources.partition.as_ref().map(ToString::to_string).unwrap_or_default(),
            nodes: resources.nodes.to_string(),
            cpus: resources.cpus.to_string(),
            memory_gib: format::gib(resources.memory_mib),
            gpus: resources.gpus.max(1).to_string(),
            gpu_type,
            hours: (resources.walltime_min / 60).to_string(),
            minutes: (resources.walltime_min % 60).to_string(),
            ..Self::default()
        }
    }

    /// The form that starts the same as `session` did.
    pub(crate) fn again(session: &Session) -> Self {
        Self {
            name: session.name.to_string(),
            app: session.app.to_string(),
            image: session.image.to_string(),
            project: session.project.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..Self::from_resources(&session.resources).with_scratch(session.scratch.as_ref())
        }
    }

    /// Reads the numbers. Each fault names its field, also what is out of range, so that everything is said at once.
    pub(crate) fn resources(&self, words: &Words) -> Result<Resources, Vec<FormError>> {
        let mut errors = Vec::new();
        let mut number = |field: &str, text: &str, blank: u32| match text.trim() {
            "" => blank,
            text => text.parse().unwrap_or_else(|_| {
                errors.push(FormError::new(words, field, words.get("start.error.number")));
                blank
            }),
        };
        let nodes = number("nodes", &self.nodes, defaults::NODES);
        let cpus = number("cpus", &self.cpus, defaults::CPUS);
        let gpus = if self.gpu_type == NO_GPU || self.gpu_type.is_empty() { 0 } else { number("gpus", &self.gpus, 1) };
        let hours = number("hours", &self.hours, 0);
        let minutes = number("hours", &self.minutes, 0);
        let memory_mib = memory_mib(&self.memory_gib).unwrap_or_else(|| {
            errors.push(FormError::new(words, "memory_gib", words.get("start.error.memory")));
            0
        });
        let walltime_min = hours.checked_mul(60).and_then(|whole| whole.checked_add(minutes)).unwrap_or(u32::MAX);
        let mut name = |field: &str, error: String| errors.push(FormError::new(words, field, sentence(&error)));
        let partition = match self.partition.trim() {
            "" => None,
            text => text.parse::<PartitionName>().map_err(|error| name("partition", error.to_string())).ok(),
        };
        let gpu_type = match self.gpu_type.trim() {
            "" | NO_GPU | ANY_GPU => None,
            text => text.parse::<GpuType>().map_err(|error| name("gpu_type", error.to_string())).ok(),
        };
        let resources = Resources { partition, nodes, cpus, memory_mib, gpus, gpu_type, walltime_min };
        for error in out_of_range(&resources) {
            let error = FormError::from_service(words, &error);
            if errors.iter().all(|known| known.field != error.field) {
                errors.push(error);
            }
        }
        if errors.is_empty() { Ok(resources) } else { Err(errors) }
    }
}

/// GiB with at most three decimals, in MiB.
pub(super) fn memory_mib(text: &str) -> Option<u64> {
    let (whole, part) = text.trim().split_once(['.', ',']).unwrap_or((text.trim(), "0"));
    if part.is_empty() || part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = part.parse::<u64>().ok()? * 10_u64.pow(3 - u32::try_from(part.len()).ok()?);
    whole.parse::<u64>().ok()?.checked_mul(1024)?.checked_add(thousandths * 1024 / 1000)
}

/// What a page about starting is made from.
pub(crate) struct Ground<'a> {
    /// The words.
    pub(crate) words: &'a Words,
    /// Images one may start.
    pub(crate) images: &'a [Image],
    /// The cluster.
    pub(crate) cluster: &'a ClusterView,
    /// Kinds of fast scratch that are offered.
    pub(crate) scratch: &'a [ScratchKind],
    /// The person's projects, the default one first.
    pub(crate) projects: &'a [ProjectName],
}

impl Ground<'_> {
    /// Fills in app and image where nothing is chosen.
    pub(crate) fn with_defaults(&self, mut input: StartInput) -> StartInput {
        let named = |name: &str| self.images.iter().find(|image| image.name.as_str() == name);
        let image = named(&input.image).or_else(|| named(defaults::IMAGE)).or(self.images.first());
        if let Some(image) = image {
            if input.image.is_empty() {
                input.image = image.name.to_string();
            }
            if input.app.is_empty() {
                let usual = image.apps.iter().find(|app| app.as_str() == defaults::APP);
                input.app = usual.or(image.apps.first()).map(ToString::to_string).unwrap_or_default();
            }
        }
        input
    }

    /// The form with what is in it and what is wrong with it.
    pub(crate) fn form(&self, input: &StartInput, errors: &[FormError]) -> StartForm {
        let field =
            |name: &str, value: &str| Field { value: value.to_owned(), error: FormError::text_of(errors, name) };
        let mut apps: Vec<String> = self.images.iter().flat_map(|image| &image.apps).map(ToString::to_string).collect();
        apps.sort();
        apps.dedup();
        StartForm {
            apps: apps
                .into_iter()
                .map(|app| Choice::new(app.clone(), app_label(self.words, &app), &input.app))
                .collect(),
            images: self
                .images
                .iter()
                .map(|image| Choice::new(image.name.as_str(), self.image_label(image), &input.image))
                .collect(),
            gpu_types: self.gpu_choices(&input.gpu_type),
            projects: self.project_choices(&input.project),
            partitions: self.partition_choices(&input.partition),
            name: field("name", &input.name),
            app: field("app", &input.app),
            image: field("image", &input.image),
            project: field("project", &input.project),
            partition: field("partition", &input.partition),
            nodes: field("nodes", &input.nodes),
            cpus: field("cpus", &input.cpus),
            memory_gib: field("memory_gib", &input.memory_gib),
            gpus: field("gpus", &input.gpus),
            gpu_type: field("gpu_type", &input.gpu_type),
            hours: field("hours", &input.hours),
            minutes: field("minutes", &input.minutes),
            scratches: self.scratch_choices(&input.scratch),
            scratch: field("scratch", &input.scratch),
            scratch_gib: field("scratch_gib", &input.scratch_gib),
            stage_in: field("stage_in", &input.stage_in),
            stage_out: field("stage_out", &input.stage_out),
            stage_out_success: field("stage_out_success", &input.stage_out_success),
            key: input.key.clone(),
            more_open: input.nodes != "1"
                || !input.partition.is_empty()
                || !input.project.is_empty()
                || input.asks_for_scratch()
                || errors.iter().any(|error| MORE.contains(&error.field.as_str())),
        }
    }

    fn image_label(&self, image: &Image) -> String {
        if image.description.is_empty() {
            return image.name.to_string();
        }
        self.words.fill("start.image_label", &[("name", image.name.as_str()), ("description", &image.description)])
    }

    fn gpu_choices(&self, chosen: &str) -> Vec<Choice> {
        let chosen = if chosen.is_empty() { NO_GPU } else { chosen };
        let mut choices = vec![Choice::new(NO_GPU, self.words.get("start.gpu_none"), chosen)];
        let types = cluster::gpu_types(&self.cluster.nodes);
        if !types.is_empty() {
            choices.push(Choice::new(ANY_GPU, self.words.get("start.gpu_any"), chosen));
        }
        for kind in types.into_iter().filter(|kind| !kind.is_empty()) {
            let free: u64 = self
                .cluster
                .nodes
                .iter()
                .filter(|node| node.available)
                .flat_map(|node| &node.gpus)
                .filter(|gpus| gpus.gpu_type == kind)
                .map(|gpus| u64::from(gpus.total.saturating_sub(gpus.allocated)))
                .sum();
            let label = self.words.fill("start.gpu_label", &[("type", &kind), ("free", &free.to_string())]);
            choices.push(Choice::new(kind, label, chosen));
        }
        choices
    }

    /// Empty where there is nothing to choose. A project that the person has left stays chosen, so that a form that starts something again says so.
    fn project_choices(&self, chosen: &str) -> Vec<Choice> {
        let mut names: Vec<&str> = self.projects.iter().map(ProjectName::as_str).collect();
        if !chosen.is_empty() && !names.is_empty() && !names.contains(&chosen) {
            names.push(chosen);
        }
        if names.len() < 2 {
            return Vec::new();
        }
        // What is like something else has its project where none is chosen, so the default is then chosen by its name.
        let default = chosen.is_empty().then(|| Choice::new("", self.words.get("start.project_default"), chosen));
        default.into_iter().chain(names.into_iter().map(|name| Choice::new(name, name, chosen))).collect()
    }

    fn partition_choices(&self, chosen: &str) -> Vec<Choice> {
        let mut choices = vec![Choice::new("", self.words.get("start.partition_default"), chosen)];
        for partition in self.cluster.partitions.iter() {
            let name = partition.name.as_str();
            let label = match partition.max_walltime_min {
                Some(longest) => {
                    let longest = format::minutes(self.words, u64::from(longest));
                    self.words.fill("start.partition_label", &[("name", name), ("longest", &longest)])
                }
                None => name.to_owned(),
            };
            choices.push(Choice::new(name, label, chosen));
        }
        choices
    }
}

/// The start form as the page shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StartForm {
    /// Apps.
    pub(crate) apps: Vec<Choice>,
    /// Images.
    pub(crate) images: Vec<Choice>,
    /// GPU types, none and any.
    pub(crate) gpu_types: Vec<Choice>,
    /// Projects; empty where there is one alone.
    pub(crate) projects: Vec<Choice>,
    /// Partitions, the default first.
    pub(crate) partitions: Vec<Choice>,
    /// See [`StartInput`].
    pub(crate) name: Field,
    /// See [`StartInput`].
    pub(crate) app: Field,
    /// See [`StartInput`].
    pub(crate) image: Field,
    /// See [`StartInput`].
    pub(crate) project: Field,
    /// See [`StartInput`].
    pub(crate) partition: Field,
    /// See [`StartInput`].
    pub(crate) nodes: Field,
    /// See [`StartInput`].
    pub(crate) cpus: Field,
    /// See [`StartInput`].
    pub(crate) memory_gib: Field,
    /// See [`StartInput`].
    pub(crate) gpus: Field,
    /// See [`StartInput`].
    pub(crate) gpu_type: Field,
    /// See [`StartInput`].
    pub(crate) hours: Field,
    /// See [`StartInput`].
    pub(crate) minutes: Field,
    /// What a fast scratch can be made of; empty where there is none to choose.
    pub(crate) scratches: Vec<Choice>,
    /// See [`StartInput`].
    pub(crate) scratch: Field,
    /// See [`StartInput`].
    pub(crate) scratch_gib: Field,
    /// See [`StartInput`].
    pub(crate) stage_in: Field,
    /// See [`StartInput`].
    pub(crate) stage_out: Field,
    /// See [`StartInput`].
    pub(crate) stage_out_success: Field,
    /// See [`StartInput`].
    pub(crate) key: String,
    /// Whether the seldom needed part is open.
    pub(crate) more_open: bool,
}

impl StartForm {
    /// The same with this image among the choices, also where the catalogue has none of its name any more.
    pub(crate) fn with_image(mut self, image: &ImageName) -> Self {
        let name = image.as_str();
        if self.images.iter().all(|choice| choice.value != name) {
            self.images.insert(0, Choice::new(name, name, &self.image.value));
        }
        self
    }
}

/// The dashboard.
#[derive(Debug, Serialize)]
pub(crate) struct DashboardPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// Sessions that live.
    pub(crate) live: Vec<SessionView>,
    /// The last ones that are over.
    pub(crate) earlier: Vec<SessionView>,
    /// What is free.
    pub(crate) free: FreeView,
    /// Sizes to start with one click; empty when there is no image.
    pub(crate) presets: Vec<PresetView>,
    /// Spaces that are short of room.
    pub(crate) spaces: Option<SpacesNotice>,
    /// Files that are to be removed.
    pub(crate) promised: Vec<PromisedView>,
}

impl Page for DashboardPage {
    const TEMPLATE: &'static str = "pages/dashboard.html";
}

/// My sessions by themselves.
#[derive(Debug, Serialize)]
pub(crate) struct SessionsFragment {
    /// Sessions that live.
    pub(crate) live: Vec<SessionView>,
    /// The last ones that are over.
    pub(crate) earlier: Vec<SessionView>,
}

impl Page for SessionsFragment {
    const TEMPLATE: &'static str = "fragments/sessions.html";
}

/// The start form's page.
#[derive(Debug, Serialize)]
pub(crate) struct StartPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The form.
    pub(crate) form: StartForm,
    /// Ready-made sizes.
    pub(crate) presets: Vec<PresetView>,
    /// What is free.
    pub(crate) free: FreeView,
    /// What the form's content would do; none beside errors.
    pub(crate) verdict: Option<Verdict>,
    /// What was wrong when it was sent.
    pub(crate) errors: Vec<FormError>,
    /// Whether there is an image to start.
    pub(crate) has_images: bool,
    /// What the person's home may do to what they start; nothing while there is room.
    pub(crate) home: Option<HomeNotice>,
    /// What it will see of the person's spaces.
    pub(crate) sees: Sees,
}

/// The spaces that what is started now will see.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sees {
    /// Whether that can be told now.
    pub(crate) known: bool,
    /// All of them but the home, by where they are seen.
    pub(crate) spaces: Vec<SeenSpace>,
}

/// A space, as the start form tells of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SeenSpace {
    /// Where it is seen.
    pub(crate) place: String,
    /// What people read.
    pub(crate) title: String,
    /// Its page.
    pub(crate) href: String,
    /// Whether it may only be read.
    pub(crate) read_only: bool,
}

impl Sees {
    /// Of what is known; of nothing where it cannot be told.
    pub(crate) fn new(known: Option<&InSessions>) -> Self {
        let seen = |seen: &InSession| SeenSpace {
            place: seen.bind.target.clone(),
            title: seen.space.title.to_string(),
            href: format!("/spaces/{}", seen.space.name),
            read_only: !seen.bind.writable,
        };
        Self {
            known: known.is_some(),
            spaces: known.map(|sees| sees.all().iter().map(seen).collect()).unwrap_or_default(),
        }
    }
}

/// A home without much room: the most common reason why an app does not start.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HomeNotice {
    /// How bad.
    pub(crate) tone: Tone,
    /// What is the matter, and what to do.
    pub(crate) text: String,
}

impl HomeNotice {
    /// Of what is the matter.
    pub(crate) fn new(words: &Words, trouble: HomeTrouble) -> Self {
        let (tone, key) = match trouble {
            HomeTrouble::Full => (Tone::Bad, "start.home_full"),
            HomeTrouble::NearlyFull => (Tone::Doubt, "start.home_nearly_full"),
            HomeTrouble::StorageFull => (Tone::Bad, "start.storage_full"),
            HomeTrouble::StorageNearlyFull => (Tone::Doubt, "start.storage_nearly_full"),
        };
        Self { tone, text: words.get(key) }
    }
}

impl Page for StartPage {
    const TEMPLATE: &'static str = "pages/start.html";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_with_decimals_and_without_surprises() {
        assert_eq!(memory_mib("2"), Some(2048));
        assert_eq!(memory_mib(" 1.5 "), Some(1536));
        assert_eq!(memory_mib("0,25"), Some(256));
        for bad in ["", "x", "1.", "1.2345", "-1", "1e3", "99999999999999999999", "1.x", "18446744073709551615"] {
            assert_eq!(memory_mib(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn resources_survive_the_form() {
        let resources = Resources {
            partition: Some("main".parse().unwrap()),
            nodes: 2,
            cpus: 4,
            memory_mib: 1536,
            gpus: 1,
            gpu_type: Some("a100".parse().unwrap()),
            walltime_min: 90,
        };
        let words = Words::parse("").unwrap();
        assert_eq!(StartInput::from_resources(&resources).resources(&words).unwrap(), resources);
        let none = Resources { gpus: 0, gpu_type: None, partition: None, ..resources };
        assert_eq!(StartInput::from_resources(&none).resources(&words).unwrap(), none);
    }

    #[test]
    fn faults_name_their_field() {
        let words = Words::parse("").unwrap();
        let input = StartInput {
            nodes: "two".into(),
            cpus: "-1".into(),
            memory_gib: "much".into(),
            gpu_type: "a b".into(),
            gpus: "99999999999".into(),
            partition: "'; rm".into(),
            hours: "1.5".into(),
            ..StartInput::default()
        };
        let fields: Vec<String> = input.resources(&words).unwrap_err().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["nodes", "cpus", "gpus", "hours", "memory_gib", "partition", "gpu_type"]);
    }

    #[test]
    fn what_is_out_of_range_is_said_with_what_cannot_be_read() {
        let words = Words::parse("").unwrap();
        let input = StartInput { nodes: "0".into(), memory_gib: "much".into(), ..StartInput::default() };
        let fields: Vec<String> = input.resources(&words).unwrap_err().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["memory_gib", "nodes", "hours"]);
    }
}
