//! What is raised, found again and ended, by readings and the time alone; and liars among several who tell of the same.

use eirene_core::alert::AlertSeverity;

use super::*;

const RULE: AlertRule = AlertRule::MemoryNearlyFull;

fn settings() -> BTreeMap<AlertRule, Settings> {
    let settings = Settings {
        severity: AlertSeverity::Warning,
        raise: 0.9,
        clear: 0.8,
        raise_after: SignedDuration::from_secs(10),
        clear_after: SignedDuration::from_secs(30),
    };
    BTreeMap::from([(RULE, settings)])
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn reading(value: f64) -> Reading {
    let details = BTreeMap::new();
    Reading { rule: RULE, subject: "s/n1".into(), value, session: None, is_for_operators: false, details }
}

/// What the watch wants at each second: `+` raise, `-` end, `.` nothing; what it wants is done. A value of -1 is no reading, -2 a rule of which
/// nothing is known.
fn trace(watch: &mut Watch, values: &[(i64, f64)]) -> String {
    let mut wanted = String::new();
    for (second, value) in values {
        let readings = if *value < 0.0 { Vec::new() } else { vec![reading(*value)] };
        let unknown = if *value < -1.5 { BTreeSet::from([RULE]) } else { BTreeSet::new() };
        let changes = watch.look(Round { readings, unknown, ..Round::default() }, at(*second), &settings());
        match (changes.raise.first(), changes.end.first()) {
            (Some(reading), None) => {
                watch.was_raised(reading, AlertId::generate());
                wanted.push('+');
            }
            (None, Some((key, _))) => {
                watch.was_ended(key, at(*second));
                wanted.push('-');
            }
            (None, None) => wanted.push('.'),
            both => panic!("{both:?}"),
        }
    }
    wanted
}

#[test]
fn it_is_raised_after_a_while_and_ends_after_a_while() {
    let watch = &mut Watch::default();
    assert_eq!(trace(watch, &[(0, 0.95), (5, 0.95), (10, 0.95), (15, 0.99)]), "..+.");
    assert_eq!(watch.raised()[&RULE], 1);
    assert_eq!(trace(watch, &[(20, 0.7), (49, 0.7), (50, 0.7)]), "..-");
    assert_eq!(watch.raised()[&RULE], 0);
}

#[test]
fn a_short_peak_is_nothing_and_between_the_thresholds_nothing_changes() {
    let watch = &mut Watch::default();
    assert_eq!(trace(watch, &[(0, 0.95), (5, 0.85), (10, 0.95), (19, 0.95), (20, 0.95)]), "....+");
    assert_eq!(trace(watch, &[(30, 0.7), (50, 0.85), (70, 0.7), (99, 0.7), (100, 0.7)]), "....-");
}

#[test]
fn what_is_not_read_any_more_is_back_and_what_is_not_known_stays() {
    let watch = &mut Watch::default();
    assert_eq!(trace(watch, &[(0, 0.95), (10, 0.95)]), ".+");
    assert_eq!(trace(watch, &[(20, -2.0), (900, -2.0), (910, -1.0), (939, -1.0), (940, -1.0)]), "....-");
}

#[test]
fn of_one_rule_what_is_known_ends_while_nothing_is_known_of_the_rest() {
    let watch = &mut Watch::default();
    let of = |subject: &str| Reading { subject: subject.into(), ..reading(0.95) };
    let both = Round { readings: vec![of("a"), of("b")], ..Round::default() };
    watch.look(both.clone(), at(0), &settings());
    for reading in watch.look(both, at(10), &settings()).raise {
        watch.was_raised(&reading, AlertId::generate());
    }
    let (a, b) = ((RULE, "a".to_owned()), (RULE, "b".to_owned()));
    let round = || Round { unknown_of: HashSet::from([a.clone()]), ..Round::default() };
    watch.look(round(), at(20), &settings());
    let ended = watch.look(round(), at(50), &settings()).end;
    assert_eq!(ended.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&b]);
    assert_eq!(watch.raised()[&RULE], 2, "until that is written");
}

#[test]
fn silence_does_not_bring_a_lost_gpu_back_while_its_node_is_held() {
    const LOST: AlertRule = AlertRule::GpuLost;
    let settings = BTreeMap::from([(LOST, Settings::built_in(LOST))]);
    let session = SessionId::generate();
    let key = (LOST, format!("{session}/c1/0"));
    let mut watch = Watch::default();
    // None is no reading; whether its node is held.
    let mut look = |second, value: Option<f64>, is_held: bool, settings: &BTreeMap<AlertRule, Settings>| {
        let of = |value| Reading { rule: LOST, subject: key.1.clone(), ..reading(value) };
        let held = is_held.then(|| format!("{session}/c1")).into_iter().collect();
        let round = Round { readings: value.map(of).into_iter().collect(), held, ..Round::default() };
        let changes = watch.look(round, at(second), settings);
        if let Some(reading) = changes.raise.first() {
            watch.was_raised(reading, AlertId::generate());
        }
        for (key, _) in &changes.end {
            watch.was_ended(key, at(second));
        }
        (changes.raise.len(), changes.end.len())
    };
    assert_eq!((look(0, Some(1.0), true, &settings), look(10, Some(1.0), true, &settings)), ((0, 0), (1, 0)));
    assert_eq!((look(20, None, true, &settings), look(9000, None, true, &settings)), ((0, 0), (0, 0)));
    // It is back, says somebody, and nothing else afterwards.
    assert_eq!((look(9010, Some(0.0), true, &settings), look(9069, None, true, &settings)), ((0, 0), (0, 0)));
    assert_eq!(look(9070, None, true, &settings), (0, 1));
    // The session has ended, or goes on elsewhere.
    look(9490, None, true, &settings);
    look(9500, Some(1.0), true, &settings);
    assert_eq!(look(9510, Some(1.0), true, &settings), (1, 0));
    assert_eq!((look(9520, None, false, &settings), look(9580, None, false, &settings)), ((0, 0), (0, 1)));
    // Nobody wants to hear of it any more.
    look(9980, None, true, &settings);
    look(9990, Some(1.0), true, &settings);
    assert_eq!(look(10_000, Some(1.0), true, &settings), (1, 0));
    assert_eq!(look(10_010, None, true, &BTreeMap::new()), (0, 1));
}

#[test]
fn what_goes_up_and_down_is_raised_again_after_a_while_only() {
    let watch = &mut Watch::default();
    assert_eq!(trace(watch, &[(0, 1.0), (10, 1.0), (20, 0.0), (50, 0.0)]), ".+.-");
    assert_eq!(trace(watch, &[(60, 1.0), (80, 1.0), (340, 1.0)]), "...");
    assert_eq!(trace(watch, &[(355, 1.0), (360, 1.0), (370, 1.0)]), "..+");
}

#[test]
fn what_could_not_be_written_is_asked_for_again() {
    let watch = &mut Watch::default();
    let mut look = |second, value| {
        let round = Round { readings: vec![reading(value)], ..Round::default() };
        watch.look(round, at(second), &settings()).raise.len()
    };
    assert_eq!((look(0, 1.0), look(10, 1.0), look(15, 1.0), look(20, 0.0), look(25, 1.0)), (0, 1, 1, 0, 0));
}

#[test]
fn what_was_raised_before_is_adopted_and_ends_also_where_its_rule_is_off() {
    let mut watch = Watch::default();
    let alert = Alert {
        id: AlertId::generate(),
        rule: RULE,
        severity: AlertSeverity::Warning,
        subject: "s/n1".into(),
        session: None,
        owner: None,
        value: 1.0,
        details: BTreeMap::new(),
        started_at: at(0),
        ended_at: None,
        acknowledged: None,
    };
    watch.adopt(std::slice::from_ref(&alert));
    assert_eq!(trace(&mut watch, &[(0, 0.95)]), ".");
    let round = Round { readings: vec![reading(1.0)], ..Round::default() };
    let changes = watch.look(round, at(5), &BTreeMap::new());
    assert_eq!(changes.end, [((RULE, "s/n1".to_owned()), alert.id)]);
}

/// A look at what sessions say of the same GPU, for operators; what it wants is done. How many it raised, and how many it ended.
fn said(watch: &mut Watch, second: i64, words: &[(SessionId, f64)]) -> (usize, usize) {
    said_with(watch, Settings::built_in(AlertRule::GpuMemoryErrors), second, words)
}

fn said_with(watch: &mut Watch, settings: Settings, second: i64, words: &[(SessionId, f64)]) -> (usize, usize) {
    const ERRORS: AlertRule = AlertRule::GpuMemoryErrors;
    let settings = BTreeMap::from([(ERRORS, settings)]);
    let of = |(session, value): &(SessionId, f64)| Reading {
        rule: ERRORS,
        subject: "c1/1".into(),
        session: Some((*session, UserId::generate())),
        is_for_operators: true,
        ..reading(*value)
    };
    let changes =
        watch.look(Round { readings: words.iter().map(of).collect(), ..Round::default() }, at(second), &settings);
    for reading in &changes.raise {
        watch.was_raised(reading, AlertId::generate());
    }
    for (key, _) in &changes.end {
        watch.was_ended(key, at(second));
    }
    (changes.raise.len(), changes.end.len())
}

/// As it is built in, but for thresholds that are apart.
fn apart() -> Settings {
    Settings { raise: 5.0, clear: 2.0, ..Settings::built_in(AlertRule::GpuMemoryErrors) }
}

#[test]
fn who_was_never_over_the_threshold_does_not_keep_an_alert_up() {
    let (one, other) = (SessionId::generate(), SessionId::generate());
    let watch = &mut Watch::default();
    let mut said = |second, words: &[(SessionId, f64)]| said_with(watch, apart(), second, words);
    assert_eq!(said(0, &[(one, 6.0), (other, 3.0)]), (1, 0));
    assert_eq!(said(5, &[(one, 6.0), (other, 3.0)]), (0, 0));
    assert_eq!(said(10, &[(one, 1.0), (other, 3.0)]), (0, 1));
}

#[test]
fn who_was_over_the_threshold_keeps_an_alert_up_between_the_two() {
    let (one, other) = (SessionId::generate(), SessionId::generate());
    let watch = &mut Watch::default();
    let mut said = |second, words: &[(SessionId, f64)]| said_with(watch, apart(), second, words);
    assert_eq!(said(0, &[(one, 6.0), (other, 3.0)]), (1, 0));
    assert_eq!(said(5, &[(one, 3.0), (other, 5.0)]), (0, 0));
    assert_eq!(said(10, &[(one, 1.0), (other, 3.0)]), (0, 0));
    // The one has had its part, and comes back too late for another.
    assert_eq!(said(15, &[(one, 3.0), (other, 3.0)]), (0, 0));
    assert_eq!(said(20, &[(one, 3.0), (other, 1.0)]), (0, 1));
}

#[test]
fn an_adopted_alert_goes_on_between_the_thresholds_for_whose_it_may_have_been() {
    let (one, other) = (SessionId::generate(), SessionId::generate());
    let watch = &mut Watch::default();
    let key = (AlertRule::GpuMemoryErrors, "c1/1".to_owned());
    watch.known.insert(key, HashMap::from([(None, Phase::Raised(AlertId::generate(), None))]));
    let mut said = |second, words: &[(SessionId, f64)]| said_with(watch, apart(), second, words);
    assert_eq!(said(0, &[(one, 3.0)]), (0, 0));
    assert_eq!(said(5, &[(one, 3.0), (other, 3.0)]), (0, 0));
    assert_eq!(said(10, &[(one, 1.0), (other, 3.0)]), (0, 1));
}

#[test]
fn a_liar_who_may_raise_nothing_more_hides_nothing_that_another_has_found() {
    let (liar, honest) = (SessionId::generate(), SessionId::generate());
    for words in [[(liar, 1e15), (honest, 2.0)], [(honest, 2.0), (liar, 1e15)], [(liar, f64::NAN), (honest, 2.0)]] {
        let mut watch = Watch { of_sessions: HashMap::from([(liar, MOST_OF_SESSION)]), ..Watch::default() };
        assert_eq!(said(&mut watch, 0, &[(liar, 1e15)]), (0, 0));
        assert_eq!(said(&mut watch, 5, &words), (1, 0));
        assert_eq!(watch.of_sessions[&honest], 1);
        assert_eq!(said(&mut watch, 10, &words), (0, 0), "once");
    }
}

#[test]
fn what_several_find_is_told_once_and_ends_when_the_last_of_them_is_back() {
    let [one, other] = [SessionId::generate(), SessionId::generate()];
    let watch = &mut Watch::default();
    assert_eq!(said(watch, 0, &[(one, 1.0), (other, 2.0)]), (1, 0));
    assert_eq!(watch.raised()[&AlertRule::GpuMemoryErrors], 1);
    // Whoever raised it says that all is well, or nothing, before or after the other.
    assert_eq!(said(watch, 5, &[(one, 0.0), (other, 2.0)]), (0, 0));
    assert_eq!(said(watch, 10, &[(other, 2.0), (one, 0.0)]), (0, 0));
    assert_eq!(said(watch, 15, &[(other, 2.0)]), (0, 0));
    assert_eq!(said(watch, 20, &[(one, 0.0), (other, 0.0)]), (0, 1));
    assert_eq!(watch.raised()[&AlertRule::GpuMemoryErrors], 0);
}

#[test]
fn that_another_finds_the_same_is_said_once_and_again_where_it_could_not_be_written() {
    const ERRORS: AlertRule = AlertRule::GpuMemoryErrors;
    let settings = BTreeMap::from([(ERRORS, apart())]);
    let (one, other) = (SessionId::generate(), SessionId::generate());
    let (hers, others) = (UserId::generate(), UserId::generate());
    let watch = &mut Watch::default();
    let look = |watch: &mut Watch, second, words: &[(SessionId, f64)]| {
        let of = |(session, value): &(SessionId, f64)| Reading {
            rule: ERRORS,
            subject: "c1/1".into(),
            session: Some((*session, if *session == one { hers } else { others })),
            is_for_operators: true,
            ..reading(*value)
        };
        let round = Round { readings: words.iter().map(of).collect(), ..Round::default() };
        let changes = watch.look(round, at(second), &settings);
        for reading in &changes.raise {
            watch.was_raised(reading, AlertId::generate());
        }
        changes.found.into_iter().map(|(reading, _)| reading).collect::<Vec<_>>()
    };
    assert_eq!(look(watch, 0, &[(one, 6.0), (other, 3.0)]), []);
    assert_eq!(look(watch, 5, &[(one, 9.0), (other, 3.0)]), [], "it is no more than it was, and not much");
    let found = look(watch, 10, &[(one, 6.0), (other, 6.0)]);
    assert_eq!(found.iter().map(Reading::by).collect::<Vec<_>>(), [Some(other)]);
    watch.was_not_told(&found[0]);
    assert_eq!(look(watch, 15, &[(one, 6.0), (other, 6.0)]).len(), 1);
    assert_eq!(look(watch, 20, &[(one, 6.0), (other, 6.0)]), []);
    assert_eq!(look(watch, 25, &[(one, 6.0), (other, 3.0)]), []);
    // Whoever comes and goes, or comes again with another session, is known by now.
    assert_eq!(look(watch, 30, &[(one, 6.0), (other, 1.0)]), []);
    assert_eq!(look(watch, 35, &[(one, 6.0), (other, 6.0)]), []);
    let next = SessionId::generate();
    assert_eq!(look(watch, 40, &[(one, 6.0)]), []);
    assert_eq!(look(watch, 45, &[(one, 6.0), (next, 6.0)]), []);
    // Once it is over all begins anew.
    assert_eq!(look(watch, 50, &[]), []);
    watch.was_ended(&(ERRORS, "c1/1".to_owned()), at(50));
    assert_eq!(look(watch, 8995, &[]), [], "for a while after the end nothing is raised");
    assert_eq!(look(watch, 9000, &[(one, 6.0)]), []);
    assert_eq!(look(watch, 9005, &[(one, 6.0), (next, 6.0)]).len(), 1);
    // A session that has been heard often is heard no more.
    let watch = &mut Watch { of_sessions: HashMap::from([(other, MOST_OF_SESSION)]), ..Watch::default() };
    assert_eq!(look(watch, 0, &[(one, 6.0)]), []);
    assert_eq!(look(watch, 5, &[(one, 6.0), (other, 6.0)]), []);
    // Whose an adopted one is nobody knows.
    let watch = &mut Watch::default();
    let adopted = HashMap::from([(None, Phase::Raised(AlertId::generate(), None))]);
    watch.known.insert((ERRORS, "c1/1".to_owned()), adopted);
    assert_eq!(look(watch, 0, &[(one, 6.0), (other, 6.0)]), []);
}

#[test]
fn that_the_next_session_on_a_node_finds_what_is_wrong_with_it_is_no_news() {
    const CLOCK: AlertRule = AlertRule::NodeClockOff;
    let built_in = Settings { raise_after: SignedDuration::ZERO, ..Settings::built_in(CLOCK) };
    let settings = BTreeMap::from([(CLOCK, built_in)]);
    let watch = &mut Watch::default();
    let mut look = |second, session| {
        let session = Some((session, UserId::generate()));
        let wrong = Reading { rule: CLOCK, subject: "c1".into(), session, is_for_operators: true, ..reading(6.0) };
        let changes = watch.look(Round { readings: vec![wrong], ..Round::default() }, at(second), &settings);
        for reading in &changes.raise {
            watch.was_raised(reading, AlertId::generate());
        }
        (changes.raise.len(), changes.found.len(), changes.end.len())
    };
    assert_eq!(look(0, SessionId::generate()), (1, 0, 0));
    assert_eq!(look(5, SessionId::generate()), (0, 0, 0));
    assert_eq!(look(10, SessionId::generate()), (0, 0, 0));
}

#[test]
fn what_a_liar_has_raised_and_ended_keeps_nobody_quiet() {
    let (liar, honest) = (SessionId::generate(), SessionId::generate());
    let watch = &mut Watch::default();
    assert_eq!(said(watch, 0, &[(liar, 1.0)]), (1, 0));
    // The end of the lie and the first true word of it come at the same time: the alert goes on.
    assert_eq!(said(watch, 5, &[(liar, 0.0), (honest, 1.0)]), (0, 0));
    assert_eq!(said(watch, 10, &[(liar, 1.0), (honest, 0.0)]), (0, 0));
    assert_eq!(said(watch, 15, &[(liar, 0.0), (honest, 0.0)]), (0, 1));
    assert_eq!(said(watch, 20, &[(liar, 1.0), (honest, 1.0)]), (1, 0));
    assert_eq!(said(watch, 25, &[(liar, 1.0)]), (0, 0));
    assert_eq!(said(watch, 30, &[]), (0, 1));
    assert_eq!(said(watch, 35, &[(liar, 1.0)]), (0, 0), "it was told of just now, by its own word");
}

#[test]
fn an_adopted_alert_goes_on_for_whoever_finds_what_it_is_about() {
    let (one, other) = (SessionId::generate(), SessionId::generate());
    let watch = &mut Watch::default();
    let key = (AlertRule::GpuMemoryErrors, "c1/1".to_owned());
    watch.known.insert(key, HashMap::from([(None, Phase::Raised(AlertId::generate(), None))]));
    assert_eq!(said(watch, 0, &[(one, 1.0)]), (0, 0));
    assert_eq!(said(watch, 5, &[(one, 0.0), (other, 1.0)]), (0, 0));
    assert_eq!(said(watch, 10, &[(other, 0.0)]), (0, 1));
}

#[test]
fn a_session_that_is_always_at_it_is_not_heard_for_ever_and_wrong_numbers_never() {
    let mut watch = Watch::default();
    let session = (SessionId::generate(), UserId::generate());
    let reading =
        |number: u32, value| Reading { subject: format!("s/{number}"), session: Some(session), ..reading(value) };
    let most = MOST_OF_SESSION + 10;
    let round = || Round { readings: (0..most).map(|number| reading(number, 1.0)).collect(), ..Round::default() };
    let mut raised = 0;
    watch.look(round(), at(0), &settings());
    let at_once = watch.look(round(), at(10), &settings()).raise.len();
    assert_eq!(at_once, MOST_OF_SESSION as usize, "of one look as well");
    for _ in 0..most {
        if let Some(reading) = watch.look(round(), at(10), &settings()).raise.first() {
            watch.was_raised(reading, AlertId::generate());
            raised += 1;
        }
    }
    assert_eq!(raised, MOST_OF_SESSION);
    watch.keep_sessions(&HashSet::new());
    assert_eq!(watch.look(round(), at(20), &settings()).raise.len(), 10);
    let wrong = Round { readings: vec![reading(999, f64::NAN), reading(998, f64::INFINITY)], ..Round::default() };
    let other = &mut Watch::default();
    assert_eq!(other.look(wrong.clone(), at(0), &settings()), Changes::default());
    assert_eq!(other.look(wrong, at(60), &settings()), Changes::default());
}
