//! Fast scratch in the forms that start sessions and runs: what it is made of, how much room it needs, and a line for each thing that is copied, as
//! the command line has it.

use eirene_core::scratch::{ScratchError, ScratchKind, ScratchSpec, SpacePath, StageIn, StageOn, StageOut};
use eirene_services::error::FieldError;
use eirene_words::Words;

use super::start::{Ground, StartInput, memory_mib};
use super::{Choice, FormError};

/// Characters of a line that are shown where it cannot be read.
const SHOWN: usize = 100;

impl StartInput {
    /// The same with a scratch as it was asked for. What no line can say is left out: [`unsaid`] tells of it.
    pub(super) fn with_scratch(self, wanted: Option<&ScratchSpec>) -> Self {
        let Some(wanted) = wanted else { return self };
        let out = |on: StageOn| {
            let these = wanted.stage_out.iter().filter(|entry| entry.on == on);
            these.filter_map(line_out).collect::<Vec<_>>().join("\n")
        };
        Self {
            scratch: wanted.kind.to_string(),
            scratch_gib: wanted.size_mib.map(gib_at_least).unwrap_or_default(),
            stage_in: wanted.stage_in.iter().filter_map(line_in).collect::<Vec<_>>().join("\n"),
            stage_out: out(StageOn::Always),
            stage_out_success: out(StageOn::Success),
            ..self
        }
    }

    /// Whether anything about a scratch is filled in.
    pub(super) fn asks_for_scratch(&self) -> bool {
        let all = [&self.scratch, &self.scratch_gib, &self.stage_in, &self.stage_out, &self.stage_out_success];
        all.iter().any(|text| !text.trim().is_empty())
    }

    /// Reads what is asked for, if anything. Each fault names its field.
    pub(crate) fn wanted_scratch(&self, words: &Words) -> Result<Option<ScratchSpec>, Vec<FormError>> {
        if !self.asks_for_scratch() {
            return Ok(None);
        }
        let mut errors = Vec::new();
        let kind = match self.scratch.trim() {
            "" => {
                errors.push(FormError::new(words, "scratch", words.get("start.error.scratch")));
                None
            }
            text => match text.parse::<ScratchKind>() {
                Ok(kind) => Some(kind),
                Err(error) => {
                    errors.push(FormError::from_service(words, &FieldError::no_name("scratch", error)));
                    None
                }
            },
        };
        let size_mib = match self.scratch_gib.trim() {
            "" => None,
            text => {
                let size = memory_mib(text).filter(|mib| *mib > 0);
                if size.is_none() {
                    errors.push(FormError::new(words, "scratch_gib", words.get("start.error.scratch_gib")));
                }
                size
            }
        };
        let stage_in = read(&self.stage_in, stage_in).unwrap_or_else(|bad| {
            errors.push(wrong_line(words, "stage_in", "start.error.stage_in", &bad));
            Vec::new()
        });
        let mut stage_out = Vec::new();
        for (field, text, on) in [
            ("stage_out", &self.stage_out, StageOn::Always),
            ("stage_out_success", &self.stage_out_success, StageOn::Success),
        ] {
            match read(text, |line| stage_out_of(line, on)) {
                Ok(entries) => stage_out.extend(entries),
                Err(bad) => errors.push(wrong_line(words, field, "start.error.stage_out", &bad)),
            }
        }
        match kind {
            Some(kind) if errors.is_empty() => Ok(Some(ScratchSpec { kind, size_mib, stage_in, stage_out })),
            _ => Err(errors),
        }
    }
}

/// What of a scratch the form has no line for: names in the scratch with `=` in them, and paths that begin or end with white space.
pub(crate) fn unsaid(words: &Words, wanted: Option<&ScratchSpec>) -> Vec<FormError> {
    let Some(wanted) = wanted else { return Vec::new() };
    let is_left_out = |on: StageOn| wanted.stage_out.iter().any(|entry| entry.on == on && line_out(entry).is_none());
    [
        ("stage_in", wanted.stage_in.iter().any(|entry| line_in(entry).is_none())),
        ("stage_out", is_left_out(StageOn::Always)),
        ("stage_out_success", is_left_out(StageOn::Success)),
    ]
    .into_iter()
    .filter(|(_, left_out)| *left_out)
    .map(|(field, _)| FormError::new(words, field, words.get("start.error.unsaid")))
    .collect()
}

impl Ground<'_> {
    /// What there is to choose from; nothing where none is offered and none was asked for.
    pub(super) fn scratch_choices(&self, chosen: &str) -> Vec<Choice> {
        let mut kinds = self.scratch.to_vec();
        // One that was asked for and is not offered any more is shown, and refused when it is asked for again.
        kinds.extend(chosen.parse::<ScratchKind>().ok().filter(|kind| !self.scratch.contains(kind)));
        if kinds.is_empty() {
            return Vec::new();
        }
        let none = Choice::new("", self.words.get("start.scratch_none"), chosen);
        let some = kinds.into_iter().map(|kind| {
            let key = match kind {
                ScratchKind::Node => "start.scratch_node",
                ScratchKind::Beeond => "start.scratch_beeond",
            };
            Choice::new(kind.as_str(), self.words.get(key), chosen)
        });
        [none].into_iter().chain(some).collect()
    }
}

/// What lists hold, or the first line that cannot be read.
fn read<T>(text: &str, parse: impl Fn(&str) -> Result<T, ScratchError>) -> Result<Vec<T>, (String, ScratchError)> {
    let lines = text.split('\n').map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| parse(line).map_err(|error| (line.chars().take(SHOWN).collect(), error))).collect()
}

fn wrong_line(words: &Words, field: &str, form: &str, (line, error): &(String, ScratchError)) -> FormError {
    let key = match error {
        ScratchError::Path => "start.error.stage_path",
        ScratchError::Place | ScratchError::TooMany | ScratchError::SameTarget | ScratchError::Size => form,
    };
    FormError::new(words, field, words.fill(key, &[("line", line)]))
}

/// `SPACE:PATH=PLACE`; the place has no `=`, the path may.
fn stage_in(line: &str) -> Result<StageIn, ScratchError> {
    let (from, to) = line.rsplit_once('=').ok_or(ScratchError::Place)?;
    Ok(StageIn { from: from.trim().parse()?, to: to.trim().parse()? })
}

/// `PLACE=SPACE:PATH`: the first `=` behind which a space is named, because there are names with `=` in them.
fn stage_out_of(line: &str, on: StageOn) -> Result<StageOut, ScratchError> {
    let mut wrong = ScratchError::Place;
    for (at, _) in line.match_indices('=') {
        match line[at + 1..].trim().parse::<SpacePath>() {
            Ok(to) => return Ok(StageOut { from: line[..at].trim().parse()?, to, on }),
            Err(ScratchError::Path) => wrong = ScratchError::Path,
            Err(_) => {}
        }
    }
    Err(wrong)
}

/// The line that is read as this entry, if there is one.
fn line_in(entry: &StageIn) -> Option<String> {
    let line = format!("{}={}", entry.from, entry.to);
    (stage_in(&line).as_ref() == Ok(entry)).then_some(line)
}

fn line_out(entry: &StageOut) -> Option<String> {
    let line = format!("{}={}", entry.from, entry.to);
    (stage_out_of(&line, entry.on).as_ref() == Ok(entry)).then_some(line)
}

/// GiB with at most one decimal that are not less.
fn gib_at_least(mib: u64) -> String {
    let tenths = (u128::from(mib) * 10).div_ceil(1024);
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenth == 0 { whole.to_string() } else { format!("{whole}.{tenth}") }
}

#[cfg(test)]
mod tests {
    use eirene_words::words;

    use super::*;

    fn asked(text: &str) -> ScratchSpec {
        serde_json::from_str(text).unwrap()
    }

    fn fields(input: &StartInput) -> Vec<String> {
        input.wanted_scratch(words()).unwrap_err().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_scratch_survives_the_form() {
        let wanted = asked(
            r#"{"kind":"node","size_mib":1536,"stage_in":[{"from":"home:runs/lr=0.1","to":"in"},{"from":"project-x:","to":""}],
            "stage_out":[{"from":"","to":"home:all"},{"from":"out/lr=0.1","to":"scratch:a=b c","on":"success"}]}"#,
        );
        let input = StartInput::default().with_scratch(Some(&wanted));
        assert_eq!(input.stage_in, "home:runs/lr=0.1=in\nproject-x:=");
        assert_eq!(
            (input.stage_out.as_str(), input.stage_out_success.as_str()),
            ("=home:all", "out/lr=0.1=scratch:a=b c")
        );
        assert_eq!(input.wanted_scratch(words()).unwrap(), Some(wanted.clone()));
        assert!(unsaid(words(), Some(&wanted)).is_empty());
        // As a browser sends it, and as people type it.
        let typed = StartInput { stage_in: "\r\n home:runs/lr=0.1 = in \r\nproject-x:=\r\n".to_owned(), ..input };
        assert_eq!(typed.wanted_scratch(words()).unwrap(), Some(wanted));
        assert_eq!(StartInput::default().wanted_scratch(words()).unwrap(), None);
        assert_eq!(StartInput::default().with_scratch(None).scratch, "");
    }

    #[test]
    fn what_no_line_can_say_is_named_and_never_becomes_something_else() {
        let odd = asked(
            r#"{"kind":"node","stage_in":[{"from":"home:a","to":"b=c"},{"from":"home:x","to":"x"}],
            "stage_out":[{"from":"a=b:c","to":"home:x"},{"from":" a","to":"home:y","on":"success"}]}"#,
        );
        let input = StartInput::default().with_scratch(Some(&odd));
        assert_eq!((input.stage_in.as_str(), input.stage_out.as_str()), ("home:x=x", ""));
        let said = unsaid(words(), Some(&odd));
        let names: Vec<&str> = said.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(names, ["stage_in", "stage_out", "stage_out_success"]);
    }

    #[test]
    fn faults_name_their_field_and_their_line() {
        let input = StartInput {
            scratch_gib: "much".into(),
            stage_in: "home:data=in\n<b>nothing".into(),
            stage_out: "out=home:../grace".into(),
            stage_out_success: "=home".into(),
            ..StartInput::default()
        };
        assert_eq!(fields(&input), ["scratch", "scratch_gib", "stage_in", "stage_out", "stage_out_success"]);
        let said = input.wanted_scratch(words()).unwrap_err();
        assert!(said[2].text.contains("“<b>nothing”"), "{said:?}");
        assert!(said[3].text.contains("relative"), "{said:?}");
        let odd = StartInput { scratch: "disk".into(), scratch_gib: "0".into(), ..StartInput::default() };
        assert_eq!(fields(&odd), ["scratch", "scratch_gib"]);
        let long = StartInput { scratch: "node".into(), stage_in: "x".repeat(5000), ..StartInput::default() };
        assert!(long.wanted_scratch(words()).unwrap_err()[0].text.len() < 300);
    }

    #[test]
    fn the_room_that_is_asked_for_again_is_never_less() {
        for mib in [1, 10, 100, 1024, 1536, 100_000] {
            let again = memory_mib(&gib_at_least(mib)).unwrap();
            assert!((mib..=mib + 103).contains(&again), "{mib}: {again}");
        }
    }
}
