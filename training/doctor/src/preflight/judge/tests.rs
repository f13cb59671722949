//! Every illness, in words.

use proptest::prelude::*;

use super::*;
use crate::preflight::words::Said;

/// What nodes say that are well: all links alike, over a gigabyte a second.
fn well(size: u32) -> Vec<Said> {
    let nodes: Vec<String> = (1..=size).map(|node| format!("c{node}")).collect();
    let mut all = Vec::new();
    for rank in 0..size {
        let mut say = |word| all.push(Said { rank, word });
        say(Word::Here { nodes: nodes.clone(), node: nodes[rank as usize].clone() });
        say(Word::Met);
        say(Word::Memory(Memory { bytes: 64 << 20, speed: 8.0, room: Some(2 << 30), ..Memory::default() }));
        say(Word::Processor { milliseconds: 6.0 });
        for with in rank + 1..size {
            say(Word::Link(Pair { with, latency: 40.0, out: 1.2, back: 1.1, ..Pair::default() }));
        }
        for with in 0..rank {
            say(Word::Received { with, wrong: 0 });
        }
        say(Word::Sum { milliseconds: 5.0, wrong: 0 });
        say(Word::Done);
    }
    all
}

/// The words with some of them changed.
fn with(size: u32, mut change: impl FnMut(u32, &mut Word)) -> Vec<Said> {
    let mut all = well(size);
    for said in &mut all {
        change(said.rank, &mut said.word);
    }
    all
}

/// Without what a rank says from the first of these on.
fn until(all: Vec<Said>, rank: u32, is_last: impl Fn(&Word) -> bool) -> Vec<Said> {
    let mut is_over = false;
    let keep = |said: &Said| {
        is_over |= said.rank == rank && is_last(&said.word);
        said.rank != rank || !is_over
    };
    let mut keep = keep;
    all.into_iter().filter(|said| keep(said)).collect()
}

fn failing(rank: u32, why: Why, with: &[u32], text: &str) -> Said {
    Said { rank, word: Word::Failed { why, with: with.to_vec(), text: text.to_owned() } }
}

fn of(all: Vec<Said>) -> Verdict {
    judge(&Words { all, ..Words::default() }, &[])
}

/// What is said of whom.
fn said(verdict: &Verdict) -> Vec<(String, State, &str)> {
    verdict.findings.iter().map(|finding| (finding.nodes.join("-"), finding.state, finding.fact.as_str())).collect()
}

/// Sick nodes of an only finding, with the fact.
fn only(verdict: &Verdict) -> (&str, State, &str, &[String]) {
    let [finding] = verdict.findings.as_slice() else { panic!("{:?}", verdict.findings) };
    (finding.nodes.first().map_or("", String::as_str), finding.state, &finding.fact, &verdict.exclude)
}

#[test]
fn nodes_that_are_well_are_fine() {
    for size in 1..6 {
        let verdict = of(well(size));
        assert_eq!((verdict.state, said(&verdict).len(), verdict.exclude.len()), (State::Ok, 0, 0));
        assert_eq!((verdict.nodes.len(), verdict.links.len()), (size as usize, (size * (size - 1) / 2) as usize));
        assert!(verdict.nodes.iter().all(|node| node.state == State::Ok && node.processor_ms == Some(6.0)));
    }
    let line = of(well(2)).summary(std::time::Duration::from_millis(1234));
    assert_eq!(line, "preflight: 2 nodes, 1 link fine (1.1 GB/s, 40 us), 1.2 s");
    let line = of(well(3)).summary(std::time::Duration::from_secs(2));
    assert_eq!(line, "preflight: 3 nodes, 3 links fine (at worst 1.1 GB/s, 40 us), 2.0 s");
}

#[test]
fn a_node_that_hangs_is_named_and_not_those_who_wait_for_it() {
    // It stops in its memory: the others wait for it in vain.
    let mut all: Vec<Said> = until(well(3), 1, |word| matches!(word, Word::Memory(_)));
    for rank in [0, 2] {
        all = until(all, rank, |word| matches!(word, Word::Met));
        all.push(failing(rank, Why::Absent, &[1], "waited 9.0 s for rank 1"));
    }
    let verdict = of(all);
    assert_eq!(
        only(&verdict),
        ("c2", State::Sick, "it stopped answering while its memory was tried", &["c2".to_owned()][..])
    );
    // It stops among the links: the first who waits gives up, and the others because of that.
    let mut all = until(well(4), 3, |word| matches!(word, Word::Received { .. }));
    for rank in 0..3 {
        all = until(all, rank, |word| matches!(word, Word::Sum { .. }));
    }
    all.push(failing(0, Why::Late, &[3], "a receive with tag 1 did not end within 2.5s"));
    all.push(failing(1, Why::Follows, &[0], "rank 0 has given up"));
    all.push(failing(2, Why::Late, &[0], "a receive with tag 1 did not end within 4s"));
    let verdict = of(all);
    let fact = "it stopped answering while the links were tried";
    assert_eq!(only(&verdict), ("c4", State::Sick, fact, &["c4".to_owned()][..]));
}

#[test]
fn a_node_that_never_began_is_named() {
    let mut all = until(well(2), 1, |_| true);
    all = until(all, 0, |word| matches!(word, Word::Met));
    all.push(failing(0, Why::Absent, &[1], "waited 9.0 s for rank 1"));
    let verdict = of(all);
    assert_eq!(only(&verdict), ("c2", State::Sick, "nothing began there within 18 s", &["c2".to_owned()][..]));
    let refusal = verdict.refusal();
    assert!(
        refusal.contains("node c2 is sick: nothing began there") && refusal.contains("`--exclude c2`"),
        "{refusal}"
    );
    assert!(refusal.contains("`--no-preflight`"), "{refusal}");
}

#[test]
fn a_process_that_dies_takes_the_blame_for_those_who_are_ended_with_it() {
    // Its launcher ended the others before they could say what they saw; one of them still could.
    let mut all = well(3);
    for rank in 0..3 {
        all = until(all, rank, |word| matches!(word, Word::Met));
    }
    let told = [all.clone(), vec![failing(0, Why::Died, &[2], "rank 2 died")]].concat();
    let verdict = of(told);
    let fact = "its process was ended while the nodes looked for each other";
    assert_eq!(only(&verdict), ("c3", State::Sick, fact, &["c3".to_owned()][..]));
    // Nobody could, but the launcher does.
    let verdict = judge(&Words { all: all.clone(), ended: [1].into() }, &[]);
    assert_eq!(only(&verdict), ("c2", State::Sick, fact, &["c2".to_owned()][..]));
    // Nobody knows: nobody is left out for it.
    let verdict = of(all);
    assert_eq!((verdict.state, verdict.exclude.len()), (State::Slow, 0));
}

#[test]
fn memory_that_forgets_is_sick_and_memory_that_is_full_is_said() {
    let wrong = |rank, word: &mut Word| {
        if let (2, Word::Memory(memory)) = (rank, word) {
            memory.wrong = 12;
        }
    };
    let verdict = of(with(3, wrong));
    let fact = "memory gave back 12 of 8388608 words other than they were written";
    assert_eq!(only(&verdict), ("c3", State::Sick, fact, &["c3".to_owned()][..]));
    assert_eq!(verdict.nodes[2].state, State::Sick);
    let full = |rank, word: &mut Word| {
        if let (0, Word::Memory(memory)) = (rank, word) {
            memory.room = Some(100 << 20);
        }
    };
    let verdict = of(with(2, full));
    assert_eq!(only(&verdict), ("c1", State::Slow, "only 100 MiB of memory are left to this job", &[][..]));
    assert_eq!(verdict.warnings(), ["preflight: WARNING node c1 is slow: only 100 MiB of memory are left to this job"]);
    let none = |rank, word: &mut Word| {
        if let (1, Word::Memory(memory)) = (rank, word) {
            memory.problem = Some("memory cannot be shared: memfd_create: refused".to_owned());
        }
    };
    assert_eq!(only(&of(with(2, none))).2, "memory cannot be shared: memfd_create: refused");
}

#[test]
fn a_node_is_slow_beside_the_others() {
    let slower = |times: f64| {
        of(with(3, move |rank, word| {
            if let (1, Word::Processor { milliseconds }) = (rank, word) {
                *milliseconds *= times;
            }
        }))
    };
    assert_eq!(slower(2.4).state, State::Ok);
    assert_eq!(only(&slower(2.7)), ("c2", State::Slow, "it computes 2.7 times slower than the others", &[][..]));
    let memory = of(with(2, |rank, word| {
        if let (0, Word::Memory(memory)) = (rank, word) {
            memory.speed = 1.0;
        }
    }));
    assert_eq!(only(&memory).2, "memory is read at 1.0 GB/s, that of the others at 8.0 GB/s");
}

/// The verdict where some links are changed.
fn links(size: u32, change: impl Fn(u32, &mut Pair)) -> Verdict {
    of(with(size, |rank, word| {
        if let Word::Link(pair) = word {
            change(rank, pair);
        }
    }))
}

#[test]
fn a_link_is_slow_beside_the_others_or_by_itself() {
    let one = |speed: f64| {
        links(4, move |rank, pair| {
            if (rank, pair.with) == (1, 2) {
                pair.back = speed;
            }
        })
    };
    assert_eq!(one(0.25).state, State::Ok);
    let slow = one(0.15);
    assert_eq!(said(&slow), [("c2-c3".to_owned(), State::Slow, "it moves 0.1 GB/s, the others 1.1 GB/s")]);
    assert_eq!(slow.links.iter().filter(|link| link.state == State::Slow).count(), 1);
    assert_eq!(said(&one(0.0005)), [("c2-c3".to_owned(), State::Slow, "it moves 0.5 MB/s, the others 1.1 GB/s")]);
    // An only link has nothing beside it.
    let only_link = |speed: f64| links(2, move |_, pair| pair.out = speed).state;
    assert_eq!((only_link(0.04), only_link(0.02)), (State::Ok, State::Slow));
}

#[test]
fn a_link_that_changes_data_is_sick_whoever_sees_it() {
    let there = of(with(2, |_, word| {
        if let Word::Received { wrong, .. } = word {
            *wrong = 3;
        }
    }));
    let back = links(2, |_, pair| pair.wrong = 3);
    for verdict in [there, back] {
        assert_eq!(said(&verdict), [("c1-c2".to_owned(), State::Sick, "3 words arrived other than they were sent")]);
        assert_eq!(verdict.exclude, ["c2"], "the first node is the one the program was started from");
    }
}

#[test]
fn what_is_true_of_all_links_of_a_node_is_said_of_the_node() {
    let verdict = links(4, |rank, pair| {
        if rank == 2 || pair.with == 2 {
            pair.out = 0.01;
        }
    });
    let fact = "all its links are bad; of the first: it moves 10.0 MB/s, the others 1.1 GB/s";
    assert_eq!(only(&verdict), ("c3", State::Slow, fact, &[][..]));
    let verdict = links(4, |rank, pair| {
        if rank == 0 {
            pair.wrong = 1;
        }
    });
    assert_eq!((only(&verdict).0, only(&verdict).3), ("c1", &["c1".to_owned()][..]));
}

#[test]
fn messages_that_take_long_and_clocks_that_differ_are_said() {
    let late = |latency: f64| {
        links(3, move |rank, pair| {
            if rank == 1 {
                pair.latency = latency;
            }
        })
    };
    assert_eq!(late(1_900.0).state, State::Ok);
    assert_eq!(said(&late(2_500.0)), [("c2-c3".to_owned(), State::Slow, "a message takes 2.5 ms")]);
    assert_eq!(links(2, |_, pair| pair.latency = 15_000.0).state, State::Ok, "nothing to compare it with");
    let clock = links(2, |_, pair| pair.clock = -7.0);
    assert_eq!(said(&clock), [("c1-c2".to_owned(), State::Slow, "the clocks at its ends differ by 7.0 s")]);
}

#[test]
fn nodes_that_do_not_find_each_other_are_told_apart() {
    let failed = |size, words: &[Said]| {
        let mut all = well(size);
        for rank in 0..size {
            all = until(all, rank, |word| matches!(word, Word::Met));
        }
        of([all, words.to_vec()].concat())
    };
    let two = failed(2, &[failing(0, Why::Absent, &[1], "x"), failing(1, Why::Absent, &[0], "y")]);
    assert_eq!(said(&two), [("c1-c2".to_owned(), State::Sick, "neither reaches the other over the network")]);
    assert_eq!(two.exclude, ["c2"]);
    let absent = |rank, with: &[u32]| failing(rank, Why::Absent, with, "x");
    let last = failed(3, &[absent(0, &[2]), absent(1, &[2]), absent(2, &[0])]);
    assert_eq!((only(&last).0, only(&last).2), ("c3", "the others do not reach it over the network"));
    let first = failed(3, &[absent(0, &[1, 2]), absent(1, &[0]), absent(2, &[0])]);
    assert_eq!(only(&first).0, "c1");
    let between: Vec<Said> = (0..4).map(|rank| failing(rank, Why::Link, &[3, 1], "x")).collect();
    let between = failed(4, &between);
    assert_eq!(said(&between), [("c2-c4".to_owned(), State::Sick, "no connection is made")]);
    let own = failed(2, &[failing(1, Why::Own, &[], "no room in /home"), failing(0, Why::Follows, &[1], "x")]);
    assert_eq!(only(&own), ("c2", State::Sick, "no room in /home", &["c2".to_owned()][..]));
    let both = failed(2, &[failing(1, Why::Own, &[], "what is X"), failing(0, Why::Own, &[], "what is X")]);
    assert_eq!((only(&both).1, only(&both).2), (State::Slow, "the links could not be tried: what is X"));
}

#[test]
fn a_machine_that_is_too_busy_to_be_tried_to_the_end_is_slow_and_one_that_stops_in_a_transfer_is_sick() {
    let without_sums =
        until(until(well(2), 0, |word| matches!(word, Word::Sum { .. })), 1, |word| matches!(word, Word::Sum { .. }));
    let failed = |why| {
        of([without_sums.clone(), vec![failing(0, why, &[1], "x"), failing(1, Why::Follows, &[0], "y")]].concat())
    };
    let busy = failed(Why::Over);
    assert_eq!((only(&busy).1, only(&busy).2), (State::Slow, "not everything could be tried within 12 s"));
    let stuck = failed(Why::Late);
    assert_eq!(said(&stuck), [("c1-c2".to_owned(), State::Sick, "data stopped moving in the midst of it")]);
}

#[test]
fn sums_that_are_wrong_are_a_node_s_only_where_they_are_right_elsewhere() {
    let wrong = |who: fn(u32) -> bool| {
        of(with(3, move |rank, word| {
            if let (true, Word::Sum { wrong, .. }) = (who(rank), word) {
                *wrong = 5;
            }
        }))
    };
    assert_eq!(wrong(|rank| rank == 1).exclude, ["c2"]);
    let all = wrong(|_| true);
    assert_eq!((all.state, all.exclude.len(), all.findings.len()), (State::Sick, 0, 1));
}

#[test]
fn the_table_has_a_row_for_each_node_and_link() {
    let table = links(2, |_, pair| pair.out = 0.02).table();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["node", "memory", "left", "processor", "verdict"]);
    assert_eq!(rows[1], ["c1", "8.0", "GB/s", "2.0", "GiB", "6.0", "ms", "ok"]);
    assert_eq!(rows[4], ["c1-c2", "20.0", "MB/s", "1.1", "GB/s", "40", "us", "slow"]);
}

fn any_word() -> impl Strategy<Value = Word> {
    let with = prop::collection::vec(0_u32..7, 0..3);
    let why =
        prop::sample::select(vec![Why::Absent, Why::Link, Why::Late, Why::Over, Why::Died, Why::Follows, Why::Own]);
    prop_oneof![
        Just(Word::Here { nodes: ["a", "b", "c", "d"].map(str::to_owned).to_vec(), node: "a".to_owned() }),
        Just(Word::Here { nodes: Vec::new(), node: "x".to_owned() }),
        (any::<u64>(), any::<f64>()).prop_map(|(wrong, speed)| Word::Memory(Memory {
            wrong,
            speed,
            ..Memory::default()
        })),
        any::<f64>().prop_map(|milliseconds| Word::Processor { milliseconds }),
        Just(Word::Met),
        (0_u32..7, any::<f64>(), any::<f64>(), 0_u64..2).prop_map(|(with, out, latency, wrong)| Word::Link(Pair {
            with,
            latency,
            out,
            wrong,
            ..Pair::default()
        })),
        (0_u32..7, 0_u64..2).prop_map(|(with, wrong)| Word::Received { with, wrong }),
        (0_u64..2).prop_map(|wrong| Word::Sum { milliseconds: 1.0, wrong }),
        (why, with).prop_map(|(why, with)| Word::Failed { why, with, text: "x".to_owned() }),
        Just(Word::Done),
    ]
}

proptest! {
    /// Whatever is said, there is a verdict; what is left out is of this run, and never all of it.
    #[test]
    fn any_words_have_a_verdict(words in prop::collection::vec((0_u32..7, any_word()), 0..40), ended in 0_u32..7) {
        let all: Vec<Said> = words.into_iter().map(|(rank, word)| Said { rank, word }).collect();
        let verdict = judge(&Words { all, ended: [ended].into() }, &["a".to_owned(), "b".to_owned()]);
        let names: Vec<&String> = verdict.nodes.iter().map(|node| &node.name).collect();
        prop_assert!(verdict.exclude.iter().all(|name| names.contains(&name)));
        prop_assert!(verdict.exclude.len() < names.len());
        prop_assert_eq!(verdict.state == State::Sick, !verdict.illness().is_empty());
        prop_assert!(verdict.table().lines().count() > names.len());
    }

    /// A busy machine passes: speeds within a factor of two of each other, and nodes within that too.
    #[test]
    fn noise_is_no_illness(size in 2_u32..6, noise in prop::collection::vec(1.0_f64..1.9, 64)) {
        let mut at = 0;
        let mut next = || { at += 1; noise[at % noise.len()] };
        let all = with(size, |_, word| match word {
            Word::Link(pair) => (pair.out, pair.back, pair.latency) = (0.3 * next(), 0.3 * next(), 100.0 * next()),
            Word::Processor { milliseconds } => *milliseconds = 6.0 * next(),
            Word::Memory(memory) => memory.speed = 3.0 * next(),
            _ => {}
        });
        prop_assert_eq!(of(all).state, State::Ok);
    }

    /// Who is silent is left out, whatever the others blame each other for.
    #[test]
    fn the_silent_one_is_left_out(size in 3_u32..7, silent in 0_u32..7, blame in prop::collection::vec(0_u32..7, 7)) {
        let silent = silent % size;
        let mut all = well(size);
        for rank in 0..size {
            all = until(all, rank, |word| matches!(word, Word::Sum { .. }));
            let blamed = blame[rank as usize] % size;
            if rank != silent {
                all.push(failing(rank, if blamed == silent { Why::Late } else { Why::Follows }, &[blamed], "x"));
            }
        }
        let verdict = of(all);
        prop_assert_eq!(verdict.exclude, [format!("c{}", silent + 1)]);
    }
}
