//! Spaces: what each uses and may use, in words where there is no number, and how it grows.

mod facts;
mod remarks;

use eirene_core::space::{Level, Usage, UsageSample, UsageSource};
use eirene_core::storage::Limit;
use eirene_core::{SpaceKind, SpaceOwner, SpaceState, UserId};
use eirene_services::spaces::SpaceSeen;
use eirene_words::Words;
use jiff::{SignedDuration, Timestamp};
use remarks::{asks_for_measuring, doubt, remarks, trend_words};
use serde::Serialize;

use super::chart;
use super::format::{self, Time};
use super::group_limits::GroupLimitsView;
use super::layout::{Layout, Tone};
use super::old_files::OldFilesShown;
use super::old_files::PromisedView;
use super::session::Chip;
use super::standing::Standing;
use crate::pages::Page;

pub(crate) use facts::{Fact, details};
pub(crate) use remarks::why;

/// Rows of the table of days.
const MOST_DAYS: usize = 31;

/// How much of something is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Meter {
    /// Of what.
    pub(crate) label: String,
    /// How much, in words.
    pub(crate) text: String,
    /// The same in per cent, for a bar; none where there is no limit to draw it against.
    pub(crate) percent: Option<u8>,
    /// The bar's colour.
    pub(crate) tone: Tone,
}

/// A space on a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SpaceView {
    /// Name, in addresses.
    pub(crate) name: String,
    /// What people read.
    pub(crate) title: String,
    /// What it is for.
    pub(crate) kind: String,
    /// Its page.
    pub(crate) href: String,
    /// Where what is in it is looked through; empty for whoever may not.
    pub(crate) files_href: String,
    /// Where it is said what takes the room; empty likewise.
    pub(crate) sizes_href: String,
    /// What that is called: where nobody counts what is used, it is how to know it.
    pub(crate) sizes_label: String,
    /// How full it is.
    pub(crate) chip: Option<Chip>,
    /// What is used; empty before the first look.
    pub(crate) meters: Vec<Meter>,
    /// What becomes of it, where it is not simply there.
    pub(crate) state: Option<Chip>,
    /// The same in a sentence; empty likewise.
    pub(crate) standing: String,
    /// Where sessions see it; empty where they do not.
    pub(crate) mounted_at: String,
    /// What else is to be said of the numbers, a sentence each.
    pub(crate) remarks: Vec<String>,
    /// How it grows, a sentence each.
    pub(crate) trend: Vec<String>,
    /// When it expires; empty where it does not.
    pub(crate) expires: String,
    /// Why what is shown may be over; empty when it is not.
    pub(crate) doubt: String,
    /// When it was looked at.
    pub(crate) as_of: Option<Time>,
}

impl SpaceView {
    /// Shows `seen` to `me`; `may_open` says whether whoever looks may also see what is in it.
    pub(crate) fn new(words: &Words, seen: &SpaceSeen, me: UserId, may_open: bool) -> Self {
        let SpaceSeen { space, seen: look, trend, own_level, mounted_at } = seen;
        let href = format!("/spaces/{}", space.name);
        // Of what is not there it says nothing how full it was, or how it grew.
        let is_there = space.state == SpaceState::Present;
        let may_open = may_open && is_there;
        let below = |what: &str| if may_open { format!("{href}/{what}") } else { String::new() };
        let usage = look.map(|look| look.usage);
        // Of a space that may only be read nobody's measuring counts for the others.
        let measuring_counts = space.owner_id().is_some() || space.writable && space.owner != SpaceOwner::Everybody;
        let may_measure = may_open && measuring_counts && look.as_ref().is_some_and(asks_for_measuring);
        let sizes_label = if may_measure { "my_spaces.measure" } else { "my_spaces.sizes" };
        Self {
            name: space.name.to_string(),
            title: space.title.to_string(),
            kind: kind(words, space.kind),
            files_href: below("files"),
            sizes_href: below("sizes"),
            sizes_label: words.get(sizes_label),
            href,
            chip: look.filter(|_| is_there).map(|look| level_chip(words, look.level)),
            meters: usage.map(|usage| meters(words, &usage, *own_level)).unwrap_or_default(),
            state: Standing::of(space).chip(words),
            standing: Standing::of(space).sentence(words, space),
            mounted_at: mounted_at.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            remarks: match (look, space.state) {
                // What is not there has not been looked at, and that says nothing.
                (None, SpaceState::Wanted | SpaceState::Retired | SpaceState::Gone) => Vec::new(),
                (look, _) => remarks(words, look.as_ref(), *own_level, me, may_measure),
            },
            trend: match usage.filter(counts) {
                Some(_) if is_there => trend_words(words, *trend),
                _ => Vec::new(),
            },
            expires: space
                .expires_at
                .filter(|_| matches!(space.state, SpaceState::Present | SpaceState::Wanted))
                .map(|at| words.fill("my_spaces.expires", &[("date", &date(last_moment(at)))]))
                .unwrap_or_default(),
            doubt: doubt(words, space),
            as_of: look.map(|look| Time::new(look.seen_at)),
        }
    }
}

/// What a space is for.
fn kind(words: &Words, kind: SpaceKind) -> String {
    words.get(match kind {
        SpaceKind::Home => "my_spaces.kinds.home",
        SpaceKind::Project => "my_spaces.kinds.project",
        SpaceKind::Scratch => "my_spaces.kinds.scratch",
        SpaceKind::Shared => "my_spaces.kinds.shared",
    })
}

/// How full something is, as a chip.
pub(crate) fn level_chip(words: &Words, level: Level) -> Chip {
    let key = match level {
        Level::Unknown => "my_spaces.level.unknown",
        Level::Ok => "my_spaces.level.ok",
        Level::Warning => "my_spaces.level.warning",
        Level::Critical => "my_spaces.level.critical",
        Level::Full => "my_spaces.level.full",
    };
    Chip { label: words.get(key), tone: tone(level) }
}

fn tone(level: Level) -> Tone {
    match level {
        Level::Unknown => Tone::Doubt,
        Level::Ok => Tone::Good,
        Level::Warning => Tone::Wait,
        Level::Critical | Level::Full => Tone::Bad,
    }
}

/// Whether the numbers are the space's own, and not the file system's.
fn counts(usage: &Usage) -> bool {
    usage.used_bytes.is_some() && !matches!(usage.source, UsageSource::FileSystem | UsageSource::Nothing)
}

pub(super) fn meters(words: &Words, usage: &Usage, own_level: Level) -> Vec<Meter> {
    if !counts(usage) {
        return Vec::new();
    }
    let size = |bytes: u64| format::bytes(words, bytes);
    let bytes = (usage.used_bytes.map(|n| n.0), usage.limit_bytes.map(|limit| limit.map(|n| n.0)));
    let files = (usage.used_files.map(|n| n.0), usage.limit_files.map(|limit| limit.map(|n| n.0)));
    let of_bytes = meter(words, "my_spaces.used", bytes, own_level, "my_spaces.used_only", size);
    // Of a storage that says nothing of files beyond their number, nothing is missed.
    let of_files = meter(words, "my_spaces.files", files, own_level, "my_spaces.files_used", format::number);
    of_bytes.into_iter().chain(of_files).collect()
}

fn meter(
    words: &Words,
    label: &'static str,
    (used, limit): (Option<u64>, Option<Limit<u64>>),
    own_level: Level,
    no_limit_said: &'static str,
    shown: impl Fn(u64) -> String,
) -> Option<Meter> {
    let used = used?;
    let (text, percent) = match limit {
        Some(Limit::At(most)) => (
            words.fill("my_spaces.used_of", &[("used", &shown(used)), ("limit", &shown(most))]),
            Some(eirene_services::spaces::level::percent(used, most).min(100)),
        ),
        Some(Limit::Unlimited) => (words.fill("my_spaces.used_free", &[("used", &shown(used))]), None),
        None => (words.fill(no_limit_said, &[("used", &shown(used))]), None),
    };
    Some(Meter { label: words.get(label), text, percent, tone: tone(own_level) })
}

/// A day, for people; the hour would say more than is known.
pub(crate) fn date(at: Timestamp) -> String {
    at.strftime("%-d %B %Y").to_string()
}

/// The last moment of what is over `end`: a space that ends with a day has that day as its last, and not the next.
pub(crate) fn last_moment(end: Timestamp) -> Timestamp {
    end.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(end)
}

/// A day of a space's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DayView {
    /// Which.
    pub(crate) day: String,
    /// What was used at its end.
    pub(crate) used: String,
    /// How many files; empty where nobody counted.
    pub(crate) files: String,
}

/// What a space used in the last days, as a picture and as a table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HistoryView {
    /// The picture in words.
    pub(crate) text: String,
    /// The line: points of the picture.
    pub(crate) points: String,
    /// How high the limit is in the picture; none where there is none, or where it would press everything else flat.
    pub(crate) limit: Option<String>,
    /// The days, the newest first.
    pub(crate) days: Vec<DayView>,
}

impl HistoryView {
    /// Shows samples in the order of time; none where there are none.
    pub(crate) fn new(words: &Words, samples: &[UsageSample]) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let size = |sample: &UsageSample| format::bytes(words, sample.used_bytes.0);
        let most = samples.iter().max_by_key(|sample| sample.used_bytes.0)?;
        let values = [("first", size(first)), ("last", size(last)), ("most", size(most))];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        let limit = last.limit_bytes.map(|limit| limit.0).filter(|limit| *limit / 4 <= most.used_bytes.0);
        let top = most.used_bytes.0.max(limit.unwrap_or(0)).max(1);
        let line: Vec<_> = samples.iter().map(|sample| (sample.at, sample.used_bytes.0)).collect();
        let mut days: Vec<(String, &UsageSample)> = Vec::new();
        for sample in samples {
            let day = date(sample.at);
            match days.last_mut() {
                Some((same, of_day)) if *same == day => *of_day = sample,
                _ => days.push((day, sample)),
            }
        }
        Some(Self {
            text: words.fill("my_spaces.history_chart", &values),
            points: chart::line(&line, first.at, last.at, top),
            limit: limit.map(|limit| chart::height(limit, top)),
            days: days
                .into_iter()
                .rev()
                .take(MOST_DAYS)
                .map(|(day, sample)| DayView {
                    day,
                    used: size(sample),
                    files: sample.used_files.map(|files| format::number(files.0)).unwrap_or_default(),
                })
                .collect(),
        })
    }
}

/// My spaces.
#[derive(Debug, Serialize)]
pub(crate) struct SpacesPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The spaces, the home first.
    pub(crate) spaces: Vec<SpaceView>,
    /// What the person's groups may use besides.
    pub(crate) group_limits: GroupLimitsView,
    /// Files in them that are to be removed.
    pub(crate) promised: Vec<PromisedView>,
}

impl Page for SpacesPage {
    const TEMPLATE: &'static str = "pages/spaces.html";
}

/// My spaces by themselves.
#[derive(Debug, Serialize)]
pub(crate) struct SpacesFragment {
    /// The spaces, the home first.
    pub(crate) spaces: Vec<SpaceView>,
    /// What the person's groups may use besides.
    pub(crate) group_limits: GroupLimitsView,
}

impl Page for SpacesFragment {
    const TEMPLATE: &'static str = "fragments/spaces.html";
}

/// One space.
#[derive(Debug, Serialize)]
pub(crate) struct SpacePage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The space.
    pub(crate) space: SpaceView,
    /// What it used.
    pub(crate) history: Option<HistoryView>,
    /// What else there is to know.
    pub(crate) details: Vec<Fact>,
    /// What becomes of old files; none where nothing does.
    pub(crate) old_files: Option<OldFilesShown>,
}

impl Page for SpacePage {
    const TEMPLATE: &'static str = "pages/space.html";
}

/// What changes on a space's page, by itself.
#[derive(Debug, Serialize)]
pub(crate) struct SpaceFragment {
    /// The space.
    pub(crate) space: SpaceView,
    /// What it used.
    pub(crate) history: Option<HistoryView>,
}

impl Page for SpaceFragment {
    const TEMPLATE: &'static str = "fragments/space.html";
}

/// The dashboard's line about spaces that are short of room.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SpacesNotice {
    /// How bad the worst is.
    pub(crate) tone: Tone,
    /// Which.
    pub(crate) text: String,
}

impl SpacesNotice {
    /// Of spaces; none when there is room in all of them.
    pub(crate) fn of(words: &Words, spaces: &[SpaceSeen]) -> Option<Self> {
        let level = |seen: &SpaceSeen| seen.seen.map_or(Level::Unknown, |seen| seen.level);
        let is_there = |seen: &&SpaceSeen| seen.space.state == SpaceState::Present;
        let short: Vec<&SpaceSeen> =
            spaces.iter().filter(is_there).filter(|seen| level(seen) >= Level::Warning).collect();
        let worst = short.iter().map(|seen| level(seen)).max()?;
        let names: Vec<&str> = short.iter().map(|seen| seen.space.title.as_str()).collect();
        Some(Self { tone: tone(worst), text: words.fill("my_spaces.dashboard", &[("names", &names.join(", "))]) })
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Space;
    use eirene_core::space::{HintState, LimitState, Measured, SeenUsage, SpaceDesired, StripeHint};
    use eirene_core::storage::{Bytes, Files, Why};
    use eirene_services::spaces::testing::{a_space, person};
    use eirene_services::spaces::trend::Trend;
    use eirene_services::testing::start_time;
    use eirene_words::words;

    use super::facts::limit;
    use super::*;

    fn usage(used: Option<u64>, limit: Option<Limit<u64>>) -> Usage {
        Usage {
            source: UsageSource::ProjectQuota,
            used_bytes: used.map(Bytes),
            limit_bytes: limit.map(|limit| limit.map(Bytes)),
            used_files: None,
            limit_files: None,
            total_bytes: Some(Bytes(1 << 40)),
            total_files: None,
            free_bytes: Some(Bytes(1 << 30)),
            free_files: None,
            missing: None,
            measured: None,
        }
    }

    fn seen(usage: Option<Usage>, level: Level, own_level: Level) -> SpaceSeen {
        let me = UserId::generate();
        SpaceSeen {
            space: a_space(person(me, "ada")),
            seen: usage.map(|usage| SeenUsage { usage, level, told: Level::Ok, seen_at: start_time() }),
            trend: Trend { bytes_per_day: None, full_at: None, days: 0 },
            own_level,
            mounted_at: None,
        }
    }

    fn shown(usage: Option<Usage>, level: Level) -> SpaceView {
        SpaceView::new(words(), &seen(usage, level, level), UserId::generate(), true)
    }

    #[test]
    fn a_number_that_is_missing_is_words_and_no_bar() {
        let never = shown(None, Level::Unknown);
        assert!(never.meters.is_empty() && never.chip.is_none() && never.trend.is_empty());
        assert_eq!(never.remarks, [words().get("my_spaces.never")]);

        let silent = Usage { source: UsageSource::FileSystem, missing: Some(Why::NotEnabled), ..usage(None, None) };
        let silent = shown(Some(silent), Level::Unknown);
        assert!(silent.meters.is_empty() && silent.trend.is_empty(), "{silent:?}");
        assert_eq!(silent.remarks[..2], [words().get("my_spaces.silent"), words().get("my_spaces.why.not_enabled")]);
        assert!(silent.remarks[2].starts_with("1\u{a0}GiB are free"), "{silent:?}");

        let no_limit = shown(Some(usage(Some(5), None)), Level::Unknown);
        assert_eq!((no_limit.meters.len(), no_limit.meters[0].percent), (1, None));
        let unlimited = shown(Some(usage(Some(5), Some(Limit::Unlimited))), Level::Ok);
        assert_eq!(unlimited.meters[0].percent, None);
        assert_eq!(unlimited.remarks, Vec::<String>::new());
    }

    #[test]
    fn what_was_measured_says_by_whom_and_when_and_what_nobody_counts_is_to_be_measured() {
        let me = UserId::generate();
        let view = |look: Usage, days: i64, may_open: bool| {
            let mut one = seen(Some(look), Level::Ok, Level::Ok);
            one.seen.as_mut().unwrap().seen_at = start_time() + SignedDuration::from_hours(24 * days);
            SpaceView::new(words(), &one, me, may_open)
        };
        let word = |key: &'static str| words().get(key);
        let silent = Usage { source: UsageSource::FileSystem, missing: Some(Why::NotEnabled), ..usage(None, None) };
        let asks = view(silent, 0, true);
        assert_eq!(
            (asks.sizes_label, asks.remarks.last()),
            (word("my_spaces.measure"), Some(&word("my_spaces.measure_text")))
        );
        let foreign = view(silent, 0, false);
        assert!(foreign.sizes_href.is_empty() && !foreign.remarks.contains(&word("my_spaces.measure_text")));
        let mut shared = seen(Some(silent), Level::Ok, Level::Ok);
        shared.space = Space { writable: false, ..a_space(SpaceOwner::Group("physics".parse().unwrap())) };
        let shared = SpaceView::new(words(), &shared, me, true);
        assert_eq!(shared.sizes_label, word("my_spaces.sizes"), "what a reader measures counts for nobody else");
        let away = view(Usage { missing: Some(Why::DidNotAnswer), ..silent }, 0, true);
        assert_eq!(away.sizes_label, word("my_spaces.sizes"), "it is counted, and told later");

        let by = |by: UserId, approximate: bool| Usage {
            source: UsageSource::Measured,
            missing: Some(Why::NotEnabled),
            measured: Some(Measured { by, at: start_time(), approximate }),
            ..usage(Some(5), Some(Limit::At(10)))
        };
        let mine = view(by(me, false), 7, true);
        assert_eq!((mine.meters[0].percent, mine.sizes_label), (Some(50), word("my_spaces.sizes")));
        assert_eq!(mine.remarks[..1], [words().fill("my_spaces.measured_you", &[("date", &date(start_time()))])]);
        let theirs = view(by(UserId::generate(), true), 8, true);
        assert_eq!((theirs.meters[0].percent, theirs.sizes_label), (Some(50), word("my_spaces.measure")));
        let said = [
            words().fill("my_spaces.measured", &[("date", &date(start_time()))]),
            word("my_spaces.measured_approximate"),
            word("my_spaces.measured_old"),
        ];
        assert_eq!(theirs.remarks[..3], said);
        let unlimited = view(Usage { limit_bytes: None, ..by(me, false) }, 0, true);
        assert!(unlimited.remarks[3].starts_with("1\u{a0}GiB are free"), "{unlimited:?}");
    }

    #[test]
    fn a_limit_that_is_not_held_says_what_counts() {
        let mut one = seen(Some(usage(Some(1), None)), Level::Ok, Level::Ok);
        one.space.limit_bytes = Limit::At(Bytes(1 << 30));
        (one.space.limit_state, one.space.limit_said) = (LimitState::NotHeld, Some("no quota".into()));
        let said = limit(words(), &one).unwrap();
        assert!(said.contains("no quota") && said.contains("once it is known what the space uses"), "{said}");
        one.seen.as_mut().unwrap().usage.source = UsageSource::UserQuota;
        let said = limit(words(), &one).unwrap();
        assert!(said.contains("no quota") && said.contains("the limit of all your files there counts"), "{said}");
    }

    #[test]
    fn a_bar_ends_at_its_limit_and_says_by_its_colour_how_full_the_space_itself_is() {
        let full = shown(Some(usage(Some(300), Some(Limit::At(100)))), Level::Full);
        assert_eq!((full.meters[0].percent, full.meters[0].tone), (Some(100), Tone::Bad));
        let files = Usage {
            used_files: Some(Files(81)),
            limit_files: Some(Limit::At(Files(100))),
            ..usage(Some(1), Some(Limit::At(100)))
        };
        let view = shown(Some(files), Level::Warning);
        assert_eq!(view.meters.iter().map(|meter| meter.percent).collect::<Vec<_>>(), [Some(1), Some(81)]);

        let others = seen(Some(usage(Some(1), Some(Limit::At(100)))), Level::Critical, Level::Ok);
        let view = SpaceView::new(words(), &others, UserId::generate(), true);
        assert_eq!((view.meters[0].tone, view.chip.unwrap().tone), (Tone::Good, Tone::Bad));
        assert_eq!(view.remarks, [words().get("my_spaces.all_full")]);
    }

    #[test]
    fn growth_is_said_with_the_day_it_ends() {
        let trend = |daily, full_at| trend_words(words(), Trend { bytes_per_day: daily, full_at, days: 9 });
        assert_eq!(trend(None, None), [words().get("my_spaces.trend_unknown")]);
        assert_eq!(trend(Some(-5), None), [words().get("my_spaces.trend_still")]);
        assert!(trend(Some(-(5 << 30)), None)[0].contains("shrinks by about 5\u{a0}GiB"));
        let said = trend(Some(1 << 30), Some(start_time()));
        assert_eq!(said[1], "At this rate it is full on about 2 January 2026.");
    }

    #[test]
    fn a_hint_that_is_not_applied_says_so_with_what_the_storage_said() {
        let mut one = seen(None, Level::Ok, Level::Ok);
        let shown = |one: &SpaceSeen| {
            let label = words().get("my_spaces.hint");
            let found = details(words(), one, UserId::generate()).into_iter().find(|fact| fact.label == label);
            found.map(|fact| fact.value)
        };
        assert_eq!(shown(&one), None);
        let many = words().get("my_spaces.hint_small_files");
        one.space.hint = StripeHint::SmallFiles;
        for state in [HintState::Unset, HintState::Applied] {
            one.space.hint_state = state;
            assert_eq!(shown(&one).as_ref(), Some(&many));
        }
        one.space.hint_state = HintState::Wanted;
        assert_ne!(shown(&one).as_ref(), Some(&many));
        (one.space.hint_state, one.space.hint_said) = (HintState::NotApplied, Some("no licence".into()));
        let said = shown(&one).unwrap_or_default();
        assert!(said.contains("not applied: no licence") && said.contains(&many), "{said}");
    }

    #[test]
    fn whoever_may_not_open_a_space_gets_no_way_in_and_neither_does_anybody_to_one_that_is_not_there() {
        let mut one = seen(None, Level::Ok, Level::Ok);
        let me = UserId::generate();
        assert_eq!(SpaceView::new(words(), &one, me, true).files_href, "/spaces/physics/files");
        let foreign = SpaceView::new(words(), &one, me, false);
        assert!(foreign.files_href.is_empty() && foreign.sizes_href.is_empty() && !foreign.href.is_empty());
        one.space.state = SpaceState::Retired;
        assert!(SpaceView::new(words(), &one, me, true).files_href.is_empty());
    }

    #[test]
    fn a_history_stays_in_its_picture_and_has_one_row_a_day() {
        assert!(HistoryView::new(words(), &[]).is_none());
        let sample = |hours: i64, used: u64| UsageSample {
            at: start_time() + jiff::SignedDuration::from_hours(hours),
            used_bytes: Bytes(used),
            used_files: Some(Files(1234)),
            limit_bytes: Some(Bytes(200)),
        };
        let view = HistoryView::new(words(), &[sample(0, 0), sample(1, 200), sample(30, 100)]).unwrap();
        let points: Vec<(f64, f64)> = view
            .points
            .split(' ')
            .map(|point| point.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap())
            .collect();
        assert_eq!((points.len(), points[0], points[2].0), (3, (0.0, 138.0), 600.0));
        assert!(points.iter().all(|(x, y)| (0.0..=600.0).contains(x) && (2.0..=138.0).contains(y)), "{points:?}");
        assert_eq!(view.limit.as_deref(), Some("2.0"));
        assert_eq!(
            view.days.iter().map(|day| day.used.replace('\u{a0}', " ")).collect::<Vec<_>>(),
            ["100 bytes", "200 bytes"]
        );
        let one = HistoryView::new(words(), &[sample(0, 1)]).unwrap();
        assert_eq!((one.points.split(' ').count(), one.limit), (2, None), "a far limit presses nothing flat");
    }

    #[test]
    fn the_dashboard_has_a_line_only_where_room_is_short() {
        let full = || seen(Some(usage(Some(1), None)), Level::Full, Level::Full);
        let good = || seen(Some(usage(Some(1), None)), Level::Ok, Level::Ok);
        assert!(SpacesNotice::of(words(), &[good(), seen(None, Level::Ok, Level::Ok)]).is_none());
        let notice = SpacesNotice::of(words(), &[good(), full()]).unwrap();
        assert_eq!((notice.tone, notice.text.as_str()), (Tone::Bad, "Little room is left in Physics."));
        let mut away = full();
        away.space.state = SpaceState::Retired;
        assert!(SpacesNotice::of(words(), &[away]).is_none(), "nobody writes into what was taken away");
    }

    #[test]
    fn what_was_taken_away_says_so_and_neither_how_full_it_is_nor_when_it_will_be() {
        let mut one = seen(Some(usage(Some(5), Some(Limit::At(100)))), Level::Ok, Level::Ok);
        one.trend = Trend { bytes_per_day: Some(1 << 30), full_at: Some(start_time()), days: 9 };
        let shown = |one: &SpaceSeen| SpaceView::new(words(), one, UserId::generate(), true);
        let there = shown(&one);
        assert!(there.state.is_none() && there.chip.is_some() && there.trend.len() == 2, "{there:?}");
        for state in [SpaceState::Retired, SpaceState::Gone] {
            one.space.state = state;
            one.space.desired = SpaceDesired::Retired;
            let away = shown(&one);
            assert!(away.state.is_some() && away.chip.is_none() && away.trend.is_empty(), "{away:?}");
            assert_eq!(away.meters.len(), 1, "what it used is still known");
        }
    }
}
