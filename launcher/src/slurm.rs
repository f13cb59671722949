//! The table of SLURM command lines that may run: these forms, in this order, and nothing else.
//!
//! It is the other half of the table in the SLURM adapter's README. Every value is checked for its alphabet and length (`forms.rs`), so an
//! accepted command line holds no white space, no quote and nothing a shell would read; only the reason of a drain is free text, in one
//! argument that SLURM keeps as it is.

use std::path::{Path, PathBuf};

use eirene_core::launcher::SlurmProgram;

use crate::Refusal;
use crate::forms::Part::{May, MayWord, Must, Word};
use crate::forms::{LONGEST_NAME_BYTES, Part, Value, fits};

const LONGEST_SCRIPT_BYTES: usize = 64 * 1024;
const MOST_VARIABLES: usize = 64;
const LONGEST_VARIABLE_BYTES: usize = 4096;
/// Variables with these beginnings change what `sbatch` itself does.
const FORBIDDEN_VARIABLES: [&str; 4] = ["SLURM", "SBATCH", "LD_", "MUNGE"];

/// As whom a form may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Person,
    Service,
    Either,
}

struct Form {
    program: SlurmProgram,
    who: Who,
    parts: &'static [Part],
}

const FORMS: [Form; 13] = [
    Form {
        program: SlurmProgram::Sbatch,
        who: Who::Person,
        parts: &[
            Word("--parsable"),
            Must("--job-name=", Value::Name, ""),
            May("--account=", Value::Name, ""),
            May("--qos=", Value::Name, ""),
            May("--partition=", Value::Name, ""),
            May("--nodelist=", Value::Name, ""),
            May("--constraint=", Value::Name, ""),
            Must("--nodes=", Value::Number, ""),
            Must("--ntasks=", Value::Number, ""),
            Word("--ntasks-per-node=1"),
            Must("--cpus-per-task=", Value::Number, ""),
            Must("--mem=", Value::Number, "M"),
            May("--gres=gpu:", Value::Gpus, ""),
            Must("--time=", Value::Number, ""),
            Must("--signal=B:USR1@", Value::Number, ""),
            Word("--requeue"),
            MayWord("--no-kill"),
            Word("--open-mode=append"),
            Must("--chdir=", Value::Path, ""),
            Must("--output=", Value::Path, ""),
            Must("--error=", Value::Path, ""),
            Word("--export=ALL"),
        ],
    },
    Form {
        program: SlurmProgram::Squeue,
        who: Who::Service,
        parts: &[Word("--json"), Word("--all"), Word("--states=all")],
    },
    Form {
        program: SlurmProgram::Squeue,
        who: Who::Either,
        parts: &[Word("--json"), Word("--all"), Word("--states=all"), Must("--jobs=", Value::Number, "")],
    },
    Form { program: SlurmProgram::Scancel, who: Who::Either, parts: &[Must("", Value::Number, "")] },
    Form {
        program: SlurmProgram::Sacct,
        who: Who::Service,
        parts: &[
            Word("--json"),
            Word("--allusers"),
            Word("--duplicates"),
            Must("--name=", Value::Name, ""),
            Must("--starttime=uts", Value::Number, ""),
        ],
    },
    Form {
        program: SlurmProgram::Sacctmgr,
        who: Who::Person,
        parts: &[Word("--json"), Word("show"), Word("associations"), Word("where"), Must("user=", Value::Name, "")],
    },
    Form { program: SlurmProgram::Scontrol, who: Who::Either, parts: &[Word("--version")] },
    Form { program: SlurmProgram::Scontrol, who: Who::Service, parts: &[Word("--json"), Word("ping")] },
    Form {
        program: SlurmProgram::Scontrol,
        who: Who::Service,
        parts: &[Word("--json"), Word("--all"), Word("show"), Word("nodes")],
    },
    Form {
        program: SlurmProgram::Scontrol,
        who: Who::Service,
        parts: &[Word("--json"), Word("--all"), Word("show"), Word("partitions")],
    },
    Form {
        program: SlurmProgram::Scontrol,
        who: Who::Service,
        parts: &[
            Word("update"),
            Must("nodename=", Value::Node, ""),
            Word("state=drain"),
            Must("reason=", Value::DrainReason, ""),
        ],
    },
    Form {
        program: SlurmProgram::Scontrol,
        who: Who::Service,
        parts: &[Word("update"), Must("nodename=", Value::Node, ""), Word("state=resume")],
    },
    Form {
        program: SlurmProgram::Sinfo,
        who: Who::Service,
        parts: &[Word("--noheader"), Word("--all"), Word("--format=%P")],
    },
];

/// The file name of a program.
pub fn file_name(program: SlurmProgram) -> &'static str {
    match program {
        SlurmProgram::Sbatch => "sbatch",
        SlurmProgram::Scancel => "scancel",
        SlurmProgram::Squeue => "squeue",
        SlurmProgram::Sacct => "sacct",
        SlurmProgram::Sacctmgr => "sacctmgr",
        SlurmProgram::Scontrol => "scontrol",
        SlurmProgram::Sinfo => "sinfo",
    }
}

/// The program's path below the configured directory.
pub fn path(directory: &Path, program: SlurmProgram) -> PathBuf {
    directory.join(file_name(program))
}

/// Refuses every command line that is not in the table.
pub fn check(
    program: SlurmProgram,
    as_person: bool,
    arguments: &[String],
    environment: &[(String, String)],
    input: &str,
) -> Result<(), Refusal> {
    let allowed = FORMS.iter().any(|form| {
        form.program == program
            && match form.who {
                Who::Person => as_person,
                Who::Service => !as_person,
                Who::Either => true,
            }
            && fits(form.parts, arguments)
    });
    if !allowed {
        return Err(Refusal::bad_request(format!("`{}` may not be run with these arguments", file_name(program))));
    }
    if program == SlurmProgram::Sbatch {
        check_environment(environment)?;
        check_script(input)
    } else if environment.is_empty() && input.is_empty() {
        Ok(())
    } else {
        Err(Refusal::bad_request(format!("`{}` gets no environment and no input", file_name(program))))
    }
}

fn check_environment(environment: &[(String, String)]) -> Result<(), Refusal> {
    if environment.len() > MOST_VARIABLES {
        return Err(Refusal::bad_request(format!("at most {MOST_VARIABLES} variables")));
    }
    for (name, value) in environment {
        let good_name = name.len() <= LONGEST_NAME_BYTES
            && name.bytes().next().is_some_and(|first| first.is_ascii_uppercase() || first == b'_')
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            && !FORBIDDEN_VARIABLES.iter().any(|begin| name.starts_with(begin));
        if !good_name {
            return Err(Refusal::bad_request("a variable's name is not allowed"));
        }
        if value.len() > LONGEST_VARIABLE_BYTES || value.chars().any(char::is_control) {
            return Err(Refusal::bad_request(format!("the value of `{name}` is not allowed")));
        }
    }
    Ok(())
}

fn check_script(script: &str) -> Result<(), Refusal> {
    // A line `#SBATCH` (or `#PBS`, `#BSUB`) would be an argument that the table has not seen.
    let directive =
        |line: &str| line.trim_start().strip_prefix('#').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
    let good = script.starts_with("#!/")
        && script.len() <= LONGEST_SCRIPT_BYTES
        && !script.contains('\0')
        && !script.lines().any(directive);
    if good { Ok(()) } else { Err(Refusal::bad_request("the batch script is not allowed")) }
}

#[cfg(test)]
mod tests {
    use eirene_core::job_file::BATCH_SCRIPT;
    use proptest::prelude::*;

    use super::*;
    use crate::forms::LONGEST_PATH_BYTES;

    const PROGRAMS: [SlurmProgram; 7] = [
        SlurmProgram::Sbatch,
        SlurmProgram::Scancel,
        SlurmProgram::Squeue,
        SlurmProgram::Sacct,
        SlurmProgram::Sacctmgr,
        SlurmProgram::Scontrol,
        SlurmProgram::Sinfo,
    ];
    const SUBMIT: &str = "--parsable --job-name=eirene-0a1b --account=research --qos=normal --partition=main --nodelist=c1 --constraint=beeond \
                          --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=2 --mem=2048M --gres=gpu:a100:1 --time=60 --signal=B:USR1@120 \
                          --requeue --open-mode=append --chdir=/home/ada --output=/home/ada/.eirene/sessions/0a/job.log \
                          --error=/home/ada/.eirene/sessions/0a/job.log --export=ALL";

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn runs(program: SlurmProgram, as_person: bool, line: &str) -> bool {
        let input = if program == SlurmProgram::Sbatch { BATCH_SCRIPT } else { "" };
        check(program, as_person, &words(line), &[], input).is_ok()
    }

    #[test]
    fn the_adapters_command_lines_run() {
        assert!(runs(SlurmProgram::Sbatch, true, SUBMIT));
        let least = words(SUBMIT)
            .into_iter()
            .filter(|word| {
                !["--account", "--qos", "--partition", "--nodelist", "--constraint", "--gres"]
                    .iter()
                    .any(|optional| word.starts_with(optional))
            })
            .collect::<Vec<_>>();
        assert!(check(SlurmProgram::Sbatch, true, &least, &[], BATCH_SCRIPT).is_ok());
        assert!(runs(SlurmProgram::Sbatch, true, &SUBMIT.replace("gpu:a100:1", "gpu:2")));
        assert!(runs(SlurmProgram::Sbatch, true, &SUBMIT.replace("job.log", "%j.log")));
        for as_person in [true, false] {
            assert!(runs(SlurmProgram::Squeue, as_person, "--json --all --states=all --jobs=17"));
            assert!(runs(SlurmProgram::Scancel, as_person, "17"));
            assert!(runs(SlurmProgram::Scontrol, as_person, "--version"));
        }
        assert!(runs(SlurmProgram::Squeue, false, "--json --all --states=all"));
        assert!(runs(
            SlurmProgram::Sacct,
            false,
            "--json --allusers --duplicates --name=eirene-0a --starttime=uts1700000000"
        ));
        assert!(runs(SlurmProgram::Sacctmgr, true, "--json show associations where user=ada"));
        assert!(runs(SlurmProgram::Scontrol, false, "--json ping"));
        assert!(runs(SlurmProgram::Scontrol, false, "--json --all show nodes"));
        assert!(runs(SlurmProgram::Scontrol, false, "--json --all show partitions"));
        assert!(runs(SlurmProgram::Scontrol, false, "update nodename=c1 state=resume"));
    }

    #[test]
    fn a_node_is_drained_by_the_service_with_a_signed_reason_of_one_line() {
        let drains = |as_person: bool, node: &str, reason: &str| {
            let arguments =
                ["update", &format!("nodename={node}"), "state=drain", &format!("reason={reason}")].map(str::to_owned);
            check(SlurmProgram::Scontrol, as_person, &arguments, &[], "").is_ok()
        };
        assert!(drains(false, "c1", "fan 3; is it $(broken)? (eirene: ada)"));
        assert!(!drains(true, "c1", "fan (eirene: ada)"));
        for node in ["all", "ALL", "c[1-4]", "c1,c2", "", "-c1", "c1 state=down"] {
            assert!(!drains(false, node, "fan (eirene: ada)"), "{node}");
        }
        let long = format!("{} (eirene: ada)", "x".repeat(201));
        for reason in [
            "",
            "fan",
            " (eirene: ada)",
            " fan (eirene: ada)",
            "fan\n (eirene: ada)",
            "fan\0 (eirene: ada)",
            "fan (eirene: ROOT)",
            &long,
        ] {
            assert!(!drains(false, "c1", reason), "{reason:?}");
        }
    }

    /// Reads the adapter's table, so that neither side can change alone.
    #[test]
    fn the_table_is_the_adapters() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../slurm-adapter/README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let mut forms = 0;
        for line in readme.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, program, who, arguments, ..] = cells[..] else { panic!("{line}") };
            let program = program.trim_matches('`');
            let program = PROGRAMS.into_iter().find(|known| file_name(*known) == program).unwrap();
            let whole =
                arguments.replace("NAME", "name").replace("PATH", "/home/ada").replace("ID", "17").replace('N', "5");
            // `[a` or `b]` is one optional argument with two faces; the first is taken.
            let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            let (mut all, mut least) = (Vec::new(), Vec::new());
            for word in quoted(&whole.replace(" or `", " `or ")) {
                let plain = word.trim_matches(['[', ']']).to_owned();
                if plain.starts_with("or ") {
                    continue;
                }
                let optional = word.starts_with('[');
                all.push(plain.clone());
                if !optional {
                    least.push(plain);
                }
            }
            let input = if program == SlurmProgram::Sbatch { BATCH_SCRIPT } else { "" };
            for (role, as_person) in [("person", true), ("service", false)] {
                for arguments in [&all, &least] {
                    let allowed = check(program, as_person, arguments, &[], input).is_ok();
                    assert_eq!(allowed, who.contains(role), "{role}: {arguments:?}");
                }
            }
            forms += 1;
        }
        assert_eq!(forms, FORMS.len());
    }

    #[test]
    fn a_command_line_belongs_to_its_role() {
        assert!(!runs(SlurmProgram::Sbatch, false, SUBMIT));
        assert!(!runs(SlurmProgram::Squeue, true, "--json --all --states=all"));
        assert!(!runs(SlurmProgram::Scontrol, true, "--json --all show nodes"));
        assert!(!runs(SlurmProgram::Sacct, true, "--json --allusers --duplicates --name=x --starttime=uts1"));
    }

    #[test]
    fn everything_else_is_refused() {
        for line in ["", "-1", "0", "17 18", "17_1", "--user=ada", "--signal=KILL 17", "99999999999", "17;id", "017"] {
            assert!(!runs(SlurmProgram::Scancel, true, line), "{line}");
        }
        for line in [
            "update nodename=c1 state=down",
            "update nodename=c1 state=drain",
            "update nodename=all state=resume",
            "update nodename=c1 state=resume reason=x",
            "update jobid=1 state=resume",
            "--json shutdown",
            "--json --all show config",
            "reconfigure",
            "--json ping x",
        ] {
            assert!(!runs(SlurmProgram::Scontrol, false, line), "{line}");
        }
        assert!(!runs(SlurmProgram::Sinfo, false, "--json"));
        assert!(!runs(SlurmProgram::Sacct, false, "--json --allusers --duplicates --name=a,b --starttime=uts1"));
        for (good, bad) in [
            ("--job-name=eirene-0a1b", "--job-name=-x"),
            ("--job-name=eirene-0a1b", "--job-name=$(id)"),
            ("--mem=2048M", "--mem=2048"),
            ("--mem=2048M", "--mem=0M"),
            ("--gres=gpu:a100:1", "--gres=gpu:a100:1,nic:1"),
            ("--gres=gpu:a100:1", "--gres=license:1"),
            ("--time=60", "--time=UNLIMITED"),
            ("--chdir=/home/ada", "--chdir=home/ada"),
            ("--chdir=/home/ada", "--chdir=/home/ada/../grace"),
            ("job.log ", "%u.log "),
            ("job.log ", "a,b.log "),
            ("--export=ALL", "--export=ALL,LD_PRELOAD=/tmp/x"),
            ("--export=ALL", "--export=ALL --wrap=id"),
            ("--export=ALL", "--export=ALL --uid=0"),
            ("--parsable", "--uid=root --parsable"),
            ("--requeue", "--exclusive"),
        ] {
            let line = SUBMIT.replace(good, bad);
            assert_ne!(line, SUBMIT);
            assert!(!runs(SlurmProgram::Sbatch, true, &line), "{bad}");
        }
    }

    #[test]
    fn only_sbatch_gets_input_and_environment() {
        let job = [("EIRENE_JOB_FILE".to_owned(), "/home/ada/job.json".to_owned())];
        assert!(check(SlurmProgram::Sbatch, true, &words(SUBMIT), &job, BATCH_SCRIPT).is_ok());
        assert!(check(SlurmProgram::Scancel, true, &words("17"), &job, "").is_err());
        assert!(check(SlurmProgram::Scancel, true, &words("17"), &[], "x").is_err());
    }

    #[test]
    fn hostile_variables_and_scripts_are_refused() {
        for (name, value) in [
            ("LD_PRELOAD", "/tmp/x"),
            ("SBATCH_UID", "0"),
            ("SLURM_CONF", "/tmp/slurm.conf"),
            ("MUNGE_SOCKET", "/tmp/munge"),
            ("", "x"),
            ("a", "x"),
            ("A B", "x"),
            ("A=B", "x"),
            ("GOOD", "two\nlines"),
            ("GOOD", "nul\0"),
        ] {
            let environment = [(name.to_owned(), value.to_owned())];
            assert!(
                check(SlurmProgram::Sbatch, true, &words(SUBMIT), &environment, BATCH_SCRIPT).is_err(),
                "{name}={value:?}"
            );
        }
        let many = vec![("GOOD".to_owned(), "x".to_owned()); MOST_VARIABLES + 1];
        assert!(check(SlurmProgram::Sbatch, true, &words(SUBMIT), &many, BATCH_SCRIPT).is_err());
        for script in
            ["", "id", "#!/bin/sh\n#SBATCH --uid=0\n", "#!/bin/sh\n  #PBS -l x\n", "#SBATCH --uid=0", "#!/bin/sh\n\0"]
        {
            assert!(check(SlurmProgram::Sbatch, true, &words(SUBMIT), &[], script).is_err(), "{script:?}");
        }
        assert!(check(SlurmProgram::Sbatch, true, &words(SUBMIT), &[], "#!/bin/sh\n# a remark\nsleep 1\n").is_ok());
    }

    /// Arguments near the good ones: pieces of them, glued to hostile text.
    fn argument() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(words(SUBMIT));
        prop_oneof![
            4 => piece.clone(),
            2 => (piece.clone(), any::<String>()).prop_map(|(piece, text)| piece + &text),
            2 => (piece, any::<prop::sample::Index>(), any::<char>()).prop_map(|(mut piece, index, c)| {
                piece.insert(index.index(piece.len() + 1), c);
                piece
            }),
            1 => "[ -~]{0,40}",
            1 => "[0-9]{1,12}",
        ]
    }

    fn is_tame(argument: &str) -> bool {
        argument == "--format=%P"
            || argument.len() <= LONGEST_PATH_BYTES + 20
                && !argument.chars().any(|c| c.is_whitespace() || c.is_control() || "\\\"',".contains(c))
                && !argument.replace("%j", "").contains('%')
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_accepted_is_tame(program in prop::sample::select(&PROGRAMS[..]), person: bool,
                                    arguments in prop::collection::vec(argument(), 0..20)) {
            if check(program, person, &arguments, &[], "").is_ok() {
                prop_assert!(arguments.iter().all(|argument| is_tame(argument)), "{arguments:?}");
            }
        }

        #[test]
        fn one_changed_argument_of_a_submit_stays_tame(index: prop::sample::Index, other in argument()) {
            let mut arguments = words(SUBMIT);
            let position = index.index(arguments.len());
            arguments[position] = other;
            if check(SlurmProgram::Sbatch, true, &arguments, &[], BATCH_SCRIPT).is_ok() {
                prop_assert!(arguments.iter().all(|argument| is_tame(argument)), "{arguments:?}");
                let option = |text: &str| text.split('=').next().map(str::to_owned);
                prop_assert_eq!(option(&arguments[position]), option(&words(SUBMIT)[position]));
            }
        }
    }
}
