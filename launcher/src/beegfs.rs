//! The table of BeeGFS's command lines that may run: these forms, in this order, and nothing else.
//!
//! They are what the storage adapters say (`storage/README.md`, `storage/src/beegfs8/call.rs`), whose tests ask this table. Options that say
//! whom to ask, or with which secret, are in no form: those are the configuration's and are put in front. Limits are set for anybody but root.

use std::time::Duration;

use crate::Refusal;
use crate::config::Generation;
use crate::forms::Part::{self, May, MayOneOf, MayWord, Must, OneOf, Word, Words};
use crate::forms::{Value, fits};

/// Longest run: the tool asks one server after the other.
const LIMIT: Duration = Duration::from_secs(16);
/// Longest run of a question to one server, for which the tool may wait without end. The servers that answer take their turns in the meantime.
const ONE_SERVER_LIMIT: Duration = Duration::from_secs(4);

struct Form {
    /// Whether it changes something.
    changes: bool,
    limit: Duration,
    parts: &'static [Part],
}

const fn looks(parts: &'static [Part]) -> Form {
    Form { changes: false, limit: LIMIT, parts }
}

const fn asks_one_server(parts: &'static [Part]) -> Form {
    Form { changes: false, limit: ONE_SERVER_LIMIT, parts }
}

const fn changes(parts: &'static [Part]) -> Form {
    Form { changes: true, limit: LIMIT, parts }
}

const USER_OR_GROUP: Part = OneOf(&["--uid", "--gid"]);
const SERVERS: Part = OneOf(&["--nodetype=meta", "--nodetype=storage"]);
const POOL: Part = Must("--storagepoolid=", Value::Id, "");
const SIZE: Part = Must("--sizelimit=", Value::Limit, "");
const FILES: Part = Must("--inodelimit=", Value::Limit, "");

const SEVEN: [Form; 16] = [
    looks(&[Word("--version")]),
    looks(&[
        Word("--listnodes"),
        OneOf(&["--nodetype=management", "--nodetype=meta", "--nodetype=storage"]),
        Word("--details"),
        // A portal from before that asks without.
        MayWord("--reachable"),
    ]),
    looks(&[Words(&["--listtargets", "--nodetype=meta", "--state", "--spaceinfo"])]),
    looks(&[Words(&["--listtargets", "--nodetype=storage", "--state", "--spaceinfo", "--pools", "--longnodes"])]),
    looks(&[Word("--liststoragepools")]),
    looks(&[
        Word("--getquota"),
        USER_OR_GROUP,
        Word("--range"),
        Must("", Value::Id, ""),
        Must("", Value::Id, ""),
        Words(&["--withzero", "--csv"]),
    ]),
    looks(&[Word("--getquota"), USER_OR_GROUP, Must("", Value::Id, ""), Words(&["--withzero", "--csv"])]),
    looks(&[Words(&["--getquota", "--defaultlimits", "--csv"]), POOL]),
    looks(&[Words(&["--getentryinfo", "--unmounted"]), Must("", Value::StoragePath, "")]),
    looks(&[Word("--serverstats"), SERVERS, Must("--history=", Value::Number, ""), Word("--interval=0")]),
    looks(&[Word("--serverstats"), SERVERS, Words(&["--interval=0", "--perserver", "--names"])]),
    looks(&[OneOf(&["--userstats", "--clientstats"]), SERVERS, Word("--interval=0")]),
    changes(&[Word("--setquota"), USER_OR_GROUP, Must("", Value::Number, ""), SIZE, FILES, POOL]),
    changes(&[Words(&["--setquota", "--default"]), USER_OR_GROUP, SIZE, FILES, POOL]),
    // Root is limited by nobody here; the tool itself does it with a default.
    changes(&[
        Word("--setquota"),
        USER_OR_GROUP,
        Words(&["0", "--sizelimit=unlimited", "--inodelimit=unlimited"]),
        POOL,
    ]),
    changes(&[
        Words(&["--setpattern", "--unmounted"]),
        May("--chunksize=", Value::Number, ""),
        May("--numtargets=", Value::Number, ""),
        May("--storagepoolid=", Value::Id, ""),
        MayOneOf(&["--pattern=raid0", "--pattern=buddymirror"]),
        Must("", Value::StoragePath, ""),
    ]),
];

const ROWS: Part = Words(&["--output=ndjson", "--raw"]);
const RAW: Part = Word("--raw");
/// Known to 8.4.0 and later.
const NO_ALERTS: Part = MayWord("--disable-alerts");
const PLAIN: Part = Words(&["--disable-emojis", "--log-level=0"]);
const STATS: Part = Word("--columns=time,node_id,alias,queue_length,requests,busy_workers,written,read");

const EIGHT: [Form; 16] = [
    looks(&[NO_ALERTS, Word("version")]),
    looks(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Word("--columns=id,type,alias,nics,reachable"),
        Words(&["node", "list", "--with-nics", "--reachability-check", "--reachability-error"]),
    ]),
    looks(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Word(
            "--columns=id,type,alias,node,storage_pool,reachability,last_contact,consistency,cap_pool,space,space_free,inodes,inodes_free",
        ),
        Words(&["target", "list", "--state", "--capacity"]),
    ]),
    looks(&[
        Words(&["--output=json", "--page-size=1000000", "--raw"]),
        NO_ALERTS,
        PLAIN,
        Word(
            "--columns=id,alias,targets,mirrors,user_space_limit,user_inode_limit,group_space_limit,group_inode_limit",
        ),
        Words(&["pool", "list", "--with-limits"]),
    ]),
    looks(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Words(&["--columns=id,type,pool,space,inode", "quota"]),
        OneOf(&["list-usage", "list-limits"]),
        Must("--uids=", Value::Range, ""),
    ]),
    looks(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Words(&["--columns=id,type,pool,space,inode", "quota"]),
        OneOf(&["list-usage", "list-limits"]),
        Must("--gids=", Value::Range, ""),
    ]),
    looks(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Word(
            "--columns=path,entry_id,type,meta_node,meta_mirror,storage_pool,stripe_pattern,storage_targets,storage_mirrors",
        ),
        Words(&["entry", "info", "--mount=none"]),
        Must("", Value::StoragePath, ""),
    ]),
    asks_one_server(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        STATS,
        Words(&["stats", "server"]),
        Must("s:", Value::Number, ""),
        Word("--interval=0s"),
        Must("--history=", Value::Number, "s"),
    ]),
    asks_one_server(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        STATS,
        Words(&["stats", "server"]),
        Must("m:", Value::Number, ""),
        Word("--interval=0s"),
        Must("--history=", Value::Number, "s"),
    ]),
    asks_one_server(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Word("stats"),
        OneOf(&["user", "client"]),
        Must("s:", Value::Number, ""),
        Words(&["--node-type=storage", "--interval=0s"]),
    ]),
    asks_one_server(&[
        ROWS,
        NO_ALERTS,
        PLAIN,
        Word("stats"),
        OneOf(&["user", "client"]),
        Must("m:", Value::Number, ""),
        Words(&["--node-type=meta", "--interval=0s"]),
    ]),
    changes(&[
        RAW,
        NO_ALERTS,
        PLAIN,
        Words(&["quota", "set-limits"]),
        Must("s:", Value::Id, ""),
        Must("--uid=", Value::Number, ""),
        May("--space=", Value::Limit, ""),
        May("--inode=", Value::Limit, ""),
    ]),
    changes(&[
        RAW,
        NO_ALERTS,
        PLAIN,
        Words(&["quota", "set-limits"]),
        Must("s:", Value::Id, ""),
        Must("--gid=", Value::Number, ""),
        May("--space=", Value::Limit, ""),
        May("--inode=", Value::Limit, ""),
    ]),
    changes(&[
        RAW,
        NO_ALERTS,
        PLAIN,
        Words(&["quota", "set-defaults"]),
        Must("s:", Value::Id, ""),
        May("--user-space=", Value::Limit, ""),
        May("--user-inode=", Value::Limit, ""),
    ]),
    changes(&[
        RAW,
        NO_ALERTS,
        PLAIN,
        Words(&["quota", "set-defaults"]),
        Must("s:", Value::Id, ""),
        May("--group-space=", Value::Limit, ""),
        May("--group-inode=", Value::Limit, ""),
    ]),
    changes(&[
        RAW,
        NO_ALERTS,
        PLAIN,
        Words(&["entry", "set", "--mount=none"]),
        May("--chunk-size=", Value::Number, ""),
        May("--num-targets=", Value::Number, ""),
        May("--pool=s:", Value::Id, ""),
        MayOneOf(&["--pattern=raid0", "--pattern=mirrored"]),
        Must("", Value::StoragePath, ""),
    ]),
];

fn forms(generation: Generation) -> &'static [Form] {
    match generation {
        Generation::Seven => &SEVEN,
        Generation::Eight => &EIGHT,
    }
}

/// Refuses every command line that is not in the table; gives how long one that is may run.
pub fn check(generation: Generation, arguments: &[String]) -> Result<Duration, Refusal> {
    match forms(generation).iter().find(|form| fits(form.parts, arguments)) {
        Some(form) => Ok(form.limit),
        None => Err(Refusal::bad_request("BeeGFS's tool may not be run with these arguments")),
    }
}

/// What a command line of either table changes, for the audit log: its words without the path.
pub fn change(arguments: &[String]) -> Option<String> {
    let mut changing = SEVEN.iter().chain(&EIGHT).filter(|form| form.changes);
    changing.any(|form| fits(form.parts, arguments)).then(|| {
        let words = arguments.iter().filter(|word| !word.starts_with('/'));
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GENERATIONS: [Generation; 2] = [Generation::Seven, Generation::Eight];
    /// One of each form, in the order of the tables.
    const LINES: [&[&str]; 2] = [
        &[
            "--version",
            "--listnodes --nodetype=meta --details --reachable",
            "--listtargets --nodetype=meta --state --spaceinfo",
            "--listtargets --nodetype=storage --state --spaceinfo --pools --longnodes",
            "--liststoragepools",
            "--getquota --uid --range 0 65535 --withzero --csv",
            "--getquota --gid 5 --withzero --csv",
            "--getquota --defaultlimits --csv --storagepoolid=1",
            "--getentryinfo --unmounted /home/ada",
            "--serverstats --nodetype=storage --history=60 --interval=0",
            "--serverstats --nodetype=meta --interval=0 --perserver --names",
            "--userstats --nodetype=storage --interval=0",
            "--setquota --gid 2000 --sizelimit=unlimited --inodelimit=100 --storagepoolid=1",
            "--setquota --default --uid --sizelimit=0 --inodelimit=unlimited --storagepoolid=1",
            "--setquota --gid 0 --sizelimit=unlimited --inodelimit=unlimited --storagepoolid=1",
            "--setpattern --unmounted --chunksize=1048576 --numtargets=4 --storagepoolid=1 --pattern=raid0 /home/ada",
        ],
        &[
            "version",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=id,type,alias,nics,reachable node list \
             --with-nics --reachability-check --reachability-error",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=id,type,alias,node,storage_pool,\
             reachability,last_contact,consistency,cap_pool,space,space_free,inodes,inodes_free target list --state --capacity",
            "--output=json --page-size=1000000 --raw --disable-alerts --disable-emojis --log-level=0 --columns=id,alias,targets,mirrors,\
             user_space_limit,user_inode_limit,group_space_limit,group_inode_limit pool list --with-limits",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=id,type,pool,space,inode quota list-usage \
             --uids=0-65535",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=id,type,pool,space,inode quota list-limits \
             --gids=5-5",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=path,entry_id,type,meta_node,meta_mirror,\
             storage_pool,stripe_pattern,storage_targets,storage_mirrors entry info --mount=none /home/ada",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=time,node_id,alias,queue_length,requests,\
             busy_workers,written,read stats server s:1 --interval=0s --history=60s",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 --columns=time,node_id,alias,queue_length,requests,\
             busy_workers,written,read stats server m:1 --interval=0s --history=60s",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 stats user s:1 --node-type=storage --interval=0s",
            "--output=ndjson --raw --disable-alerts --disable-emojis --log-level=0 stats client m:1 --node-type=meta --interval=0s",
            "--raw --disable-alerts --disable-emojis --log-level=0 quota set-limits s:1 --uid=2001 --space=100 --inode=unlimited",
            "--raw --disable-alerts --disable-emojis --log-level=0 quota set-limits s:1 --gid=2000 --space=100",
            "--raw --disable-alerts --disable-emojis --log-level=0 quota set-defaults s:1 --user-space=100 --user-inode=5",
            "--raw --disable-alerts --disable-emojis --log-level=0 quota set-defaults s:1 --group-space=100",
            "--raw --disable-alerts --disable-emojis --log-level=0 entry set --mount=none --chunk-size=65536 --num-targets=1 --pool=s:1 \
             --pattern=mirrored /home/ada",
        ],
    ];

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_form_has_its_line_and_runs_for_its_generation_alone() {
        for (generation, lines) in GENERATIONS.into_iter().zip(LINES) {
            assert_eq!(forms(generation).len(), lines.len());
            for (form, line) in forms(generation).iter().zip(lines) {
                assert!(fits(form.parts, &words(line)), "{line}");
                assert_eq!(form.changes, line.contains("set"), "{line}");
                assert!(check(generation, &words(line)).is_ok());
                // Releases of 8 before 8.4.0 do not know it.
                assert!(check(generation, &words(&line.replace("--disable-alerts ", ""))).is_ok(), "{line}");
                let other = GENERATIONS.into_iter().find(|other| *other != generation).unwrap();
                assert!(check(other, &words(line)).is_err(), "{line}");
            }
        }
    }

    #[test]
    fn nothing_says_whom_to_ask_or_takes_more_than_its_value() {
        for (good, bad) in [
            ("--version", ""),
            ("--version", "--version --cfgFile=/tmp/x"),
            ("--version", "--cfgFile=/tmp/x --version"),
            ("--version", "--help"),
            ("--liststoragepools", "--liststoragepools --sysMgmtdHost=evil"),
            ("--range 0 65535", "--range 0 65535 --mount=/x"),
            ("--range 0 65535", "--range 0"),
            ("--range 0 65535", "--range -1 5"),
            ("--gid 2000", "--gid 0"),
            ("--gid 2000", "--gid 02000"),
            ("--gid 2000", "--gid ada"),
            ("--sizelimit=unlimited", "--sizelimit=-1"),
            ("--sizelimit=unlimited", "--sizelimit=10T"),
            ("--sizelimit=unlimited", "--sizelimit=99999999999999999999"),
            ("--pattern=raid0", "--pattern=raid0 --force"),
            ("--unmounted /home/ada", "--unmounted /home/../etc"),
            ("--unmounted /home/ada", "--unmounted home"),
            ("--unmounted /home/ada", "--unmounted --verbose"),
            ("--unmounted /home/ada", "/home/ada"),
            ("--unmounted /home/ada", "--unmounted /home/ada /home/grace"),
            ("--uids=0-65535", "--uids=5-1"),
            ("--uids=0-65535", "--uids=0"),
            ("--uids=0-65535", "--uids=all"),
            ("--uid=2001", "--uid=0"),
            ("version", "version --mgmtd-addr=evil:8010"),
            ("--mount=none", "--mount=/beegfs"),
            ("s:1 --interval", "x:1 --interval"),
            ("quota list-usage", "--auth-file=/tmp/x quota list-usage"),
            ("quota set-limits", "quota delete"),
            ("node list", "node delete"),
            ("stats user s:1", "stats user s:1 --sum"),
            ("stats user s:1", "stats user"),
            ("stats user s:1 --node-type=storage", "stats user s:1 --node-type=meta"),
        ] {
            let mut tried = 0;
            for (generation, lines) in GENERATIONS.into_iter().zip(LINES) {
                for line in lines.iter().filter(|line| line.contains(good)) {
                    let line = line.replacen(good, bad, 1);
                    assert!(check(generation, &words(&line)).is_err(), "{line}");
                    tried += 1;
                }
            }
            assert!(tried > 0, "{good}");
        }
    }

    #[test]
    fn a_question_to_one_server_is_given_less_time() {
        let limit = |generation, line| check(generation, &words(line)).unwrap();
        for line in LINES[1] {
            let expected = if line.contains(" stats ") { ONE_SERVER_LIMIT } else { LIMIT };
            assert_eq!(limit(Generation::Eight, line), expected, "{line}");
        }
        assert_eq!(limit(Generation::Seven, LINES[0][9]), LIMIT, "7 asks all of them in one question");
    }

    #[test]
    fn an_older_portal_is_still_answered() {
        for (line, runs) in [
            ("--listnodes --nodetype=meta --details", true),
            ("--listnodes --nodetype=meta --details --reachable --reachable", false),
            ("--listnodes --nodetype=meta --reachable", false),
            ("--listnodes --nodetype=meta", false),
        ] {
            assert_eq!(check(Generation::Seven, &words(line)).is_ok(), runs, "{line}");
        }
    }

    #[test]
    fn a_path_is_one_argument_whatever_it_is_called() {
        let with = |path: &str| {
            let line = [words("--getentryinfo --unmounted"), vec![path.to_owned()]].concat();
            check(Generation::Seven, &line).is_ok()
        };
        assert!(["/", "/a b", "/--help", "/$(id);'\"", "/ü/<b>"].map(with).into_iter().all(|good| good));
        assert!(!["", "a", "/a\nb", "/a\0b", "/..", "/a/./b", "/a/../b"].map(with).into_iter().any(|good| good));
        assert!(with(&format!("/{}", "a".repeat(1023))) && !with(&format!("/{}", "a".repeat(1024))));
    }

    #[test]
    fn the_audit_log_has_what_is_changed_and_no_path() {
        assert_eq!(change(&words(LINES[0][0])), None);
        assert_eq!(change(&words(LINES[0][12])).as_deref(), Some(LINES[0][12]));
        assert_eq!(change(&words(LINES[0][15])).as_deref(), LINES[0][15].strip_suffix(" /home/ada"));
        assert_eq!(change(&words("--setquota --uid 0")), None);
    }

    /// Command lines near the good ones: some arguments left out, doubled, changed or put in between.
    fn line() -> impl Strategy<Value = (Generation, Vec<String>)> {
        let good = (0..GENERATIONS.len())
            .prop_flat_map(|which| (Just(GENERATIONS[which]), prop::sample::select(LINES[which]).prop_map(words)));
        let word = prop_oneof![
            3 => prop::sample::select(LINES.concat().into_iter().flat_map(words).collect::<Vec<_>>()),
            1 => any::<String>(),
            1 => "--[a-zA-Z-]{1,12}(=[ -~]{0,12})?",
            1 => "[0-9]{1,21}",
            1 => "/[ -~]{0,20}",
        ];
        let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..4, word), 1..4);
        (good, edits).prop_map(|((generation, mut line), edits)| {
            for (place, how, word) in edits {
                let at = place.index(line.len() + 1);
                match how {
                    0 => line.insert(at, word),
                    1 if at < line.len() => line[at] = word,
                    2 if at < line.len() => line[at].push_str(&word),
                    3 if at < line.len() => drop(line.remove(at)),
                    _ => {}
                }
            }
            (generation, line)
        })
    }

    /// An argument with its value taken out, as it is in a form.
    fn shape(argument: &str) -> String {
        if argument.starts_with('/') {
            return "PATH".to_owned();
        }
        if argument.starts_with("--columns=") || argument.ends_with("=0") || argument.ends_with("=0s") {
            return argument.to_owned();
        }
        let digits = argument.trim_start_matches(|c: char| !c.is_ascii_digit());
        let begin = &argument[..argument.len() - digits.len()];
        begin.strip_suffix("unlimited").unwrap_or(begin).to_owned()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn only_the_table_runs((generation, line) in line()) {
            if check(generation, &line).is_ok() {
                let lines = LINES[usize::from(generation == Generation::Eight)];
                let known: Vec<String> = lines.iter().flat_map(|line| words(line)).collect();
                for argument in &line {
                    let shown = known.iter().any(|word| shape(word) == shape(argument))
                        || ["--gid", "--uid", "--clientstats", "client", "--nodetype=management"].contains(&argument.as_str())
                        || argument.contains("nodetype=") || argument.contains("node-type=") || argument.starts_with("--pattern=");
                    prop_assert!(shown, "{argument}");
                    let tame = argument.starts_with('/') || argument.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=:,".contains(&b));
                    prop_assert!(tame && !argument.chars().any(char::is_control), "{argument}");
                    for secret in ["--cfgFile", "--mgmtd-addr", "--auth-file", "--tls-cert-file", "--conn", "--sys"] {
                        prop_assert!(!argument.starts_with(secret));
                    }
                }
                let paths = line.iter().filter(|argument| argument.starts_with('/')).count();
                prop_assert!(paths <= 1);
            }
        }
    }
}
