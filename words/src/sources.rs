//! The sources held against the catalogue: templates, modules and all crates that say something to people.

use std::collections::BTreeSet;
use std::path::Path;

use crate::words;

/// Crates whose code asks the catalogue.
const CRATES: [&str; 10] = [
    "backend/src",
    "backend/examples",
    "backend/api/src",
    "backend/gateway/src",
    "backend/http/src",
    "backend/portal/src",
    "backend/reconcilers/src",
    "backend/services/src",
    "slurm-adapter/src",
    "words/src",
];

/// Functions that take a key as their first argument.
const ASKING: [&str; 8] = ["say", "say_with", "say_count", "get", "fill", "find", "count", "count_with"];

/// Keys put together at run time of a beginning and a name that stands in the code.
const MADE_OF_NAMES: [(&str, &str); 3] = [
    ("reason.", "backend/services/src/sessions"),
    ("refused.", "slurm-adapter/src"),
    ("limit.what.", "slurm-adapter/src"),
];

/// Keys put together at run time of a beginning and a word of the data: states, roles, scopes, statuses.
const MADE_OF_DATA: [&str; 11] = [
    "state.",
    "line.",
    "steps.",
    "app.",
    "role.",
    "scope.",
    "preset.",
    "error.title_",
    "error.text_",
    "field.",
    "account.days_",
];

/// Names of the log's fields and of the traces' spans that look like keys.
const NO_KEYS: [&str; 5] = ["session.id", "session.submit", "session.queued", "session.starting", "session.start"];

/// One file, by its path in the repository.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The code that runs, without the tests at its end.
    fn running(&self) -> &str {
        let is_test = ["/tests/", "tests.rs", "/testing/", "testing.rs", "words/src/"]
            .iter()
            .any(|part| self.path.contains(part));
        if is_test { "" } else { self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("") }
    }
}

fn sources(folder: &str, extension: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), Path::new(folder), extension, &mut found);
    assert!(!found.is_empty(), "{folder} has no {extension} files");
    found
}

fn collect(root: &Path, folder: &Path, extension: &str, into: &mut Vec<Source>) {
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            collect(root, &path, extension, into);
        } else if path.extension().is_some_and(|found| found == extension) {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            into.push(Source { path: path.display().to_string(), text });
        }
    }
}

fn code() -> Vec<Source> {
    CRATES.iter().flat_map(|folder| sources(folder, "rs")).collect()
}

/// The literal that a call's first argument begins with, for each call of `function` in `text`.
fn first_literals<'a>(text: &'a str, function: &str) -> Vec<&'a str> {
    let call = format!("{function}(");
    let calls = text.match_indices(&call).filter(|(index, _)| {
        let before = text[..*index].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    });
    calls
        .filter_map(|(index, _)| text[index + call.len()..].trim_start().strip_prefix('"')?.split_once('"'))
        .map(|(literal, _)| literal)
        .collect()
}

/// Whether a literal is a key: words joined by full stops, the first of which is a table of the catalogue.
fn looks_like_a_key(literal: &str, tables: &BTreeSet<&str>) -> bool {
    let letters =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b"_0123456789".contains(&b));
    let mut parts = literal.split('.');
    parts.next().is_some_and(|table| tables.contains(table)) && literal.contains('.') && parts.all(letters)
}

fn is_known(key: &str) -> bool {
    words().find(key).is_some() || words().find(&format!("{key}.other")).is_some()
}

#[test]
fn every_key_that_is_asked_for_is_there() {
    let tables: BTreeSet<&str> = words().keys().filter_map(|key| key.split_once('.')).map(|(table, _)| table).collect();
    let code = code();
    let actions = actions(&code);
    let mut asked = 0;
    for source in &code {
        let text = source.running();
        for literal in ASKING.iter().flat_map(|function| first_literals(text, function)) {
            if looks_like_a_key(literal, &tables) || words().find(literal).is_some() {
                asked += 1;
                assert!(is_known(literal), "{} asks for {literal}", source.path);
            }
        }
        // The commands have a function of the same name.
        if text.contains("use eirene_words::") {
            for literal in ["say", "say_with", "say_count"].iter().flat_map(|function| first_literals(text, function)) {
                assert!(is_known(literal), "{} says {literal}", source.path);
            }
        }
        // Keys that are handed on before they are asked for.
        for literal in text.split('"').filter(|literal| looks_like_a_key(literal, &tables)) {
            let is_made = MADE_OF_DATA.iter().any(|beginning| literal.starts_with(beginning));
            let is_name =
                literal.rsplit('.').next().is_some_and(|end| ["js", "css", "svg", "html", "toml"].contains(&end));
            let is_known = is_known(literal) || actions.contains(literal) || NO_KEYS.contains(&literal);
            assert!(is_made || is_name || is_known, "{} names {literal}", source.path);
        }
    }
    assert!(asked > 150, "only {asked} keys were found");
    for source in sources("frontend/templates", "html") {
        for (index, _) in source.text.match_indices("\" | t") {
            let key = source.text[..index].rsplit('"').next().unwrap();
            assert!(words().find(key).is_some(), "{} asks for {key}", source.path);
        }
    }
    for source in sources("frontend/static/js", "js") {
        for key in first_literals(&source.text, "say") {
            assert!(words().find(&format!("js.{key}")).is_some(), "{} asks for {key}", source.path);
        }
    }
}

/// Actions of the audit log, which look like keys.
fn actions(code: &[Source]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for text in code.iter().map(Source::running) {
        found.extend(first_literals(text, "audit"));
        for (before, literals) in [
            ("action: ", 1),
            ("purpose: ", 1),
            ("JobKind::Session) => ", 1),
            ("JobKind::Run) => ", 1),
            ("self.edit(actor, ", 1),
            ("by_system(", 2),
        ] {
            let behind = text.split(before).skip(1);
            found.extend(behind.flat_map(|rest| rest.split('"').skip(1).step_by(2).take(literals)));
        }
    }
    found
}

#[test]
fn no_message_is_left_over() {
    let join = |sources: Vec<Source>| sources.into_iter().map(|source| source.text).collect::<String>();
    let templates = join(sources("frontend/templates", "html"));
    let modules = join(sources("frontend/static/js", "js"));
    let code = code();
    let named = |literal: &str, folder: &str| {
        let quoted = format!("\"{literal}\"");
        code.iter().any(|source| source.path.contains(folder) && source.running().contains(&quoted))
    };
    for key in words().keys() {
        let plain = key.trim_end_matches(".one").trim_end_matches(".other");
        let used = templates.contains(&format!("\"{key}\" | t"))
            || named(plain, "")
            || key.strip_prefix("js.").is_some_and(|name| modules.contains(&format!("say(\"{name}\"")))
            || MADE_OF_DATA.iter().any(|beginning| key.starts_with(beginning))
            || MADE_OF_NAMES
                .iter()
                .any(|(beginning, folder)| key.strip_prefix(beginning).is_some_and(|name| named(name, folder)));
        assert!(used, "nobody says {key}");
    }
}

#[test]
fn every_name_a_key_is_made_of_has_its_message() {
    let code = code();
    let within =
        |file: &'static str| code.iter().filter(move |source| source.path.ends_with(file)).map(Source::running);
    let mut names: Vec<(&str, &str)> = Vec::new();
    for text in within("backend/services/src/sessions/reasons.rs") {
        names.extend(
            ["because", "because_with"].iter().flat_map(|f| first_literals(text, f)).map(|name| ("reason.", name)),
        );
    }
    for text in code.iter().map(Source::running) {
        names.extend(first_literals(text, "refused").into_iter().map(|name| ("refused.", name)));
    }
    for text in within("slurm-adapter/src/reasons/limits.rs") {
        let codes = text.split("code: \"").skip(1).filter_map(|rest| rest.split_once('"'));
        names.extend(codes.map(|(name, _)| ("limit.what.", name)));
    }
    assert!(names.len() > 35, "only {} names were found", names.len());
    for (beginning, name) in names {
        assert!(words().find(&format!("{beginning}{name}")).is_some(), "{beginning}{name} has no message");
    }
}

/// A [`eirene_core::Sentence`] is made of any text; that the text is none of ours is looked after here.
#[test]
fn no_sentence_goes_round_the_catalogue() {
    for source in &code() {
        let text = source.running();
        assert!(!text.contains("Sentence::from_catalogue"), "{} makes messages of its own", source.path);
        for (index, call) in text.match_indices("Sentence::from_elsewhere") {
            let argument = text[index + call.len()..].trim_start_matches(['(', ' ', '\n', '&']);
            let ours = argument.starts_with('"')
                || ["format!", "String::from", "concat!"].iter().any(|m| argument.starts_with(m));
            assert!(!ours, "{} writes a sentence into the code: {}", source.path, &argument[..argument.len().min(60)]);
        }
    }
}
