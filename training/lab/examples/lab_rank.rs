//! A rank for the lab: joins the world it was started in, as any program does, and says on stdout what it saw.
//!
//! - `lab_rank wire COLLECTIVE ELEMENTS ROUNDS`: runs `allreduce` or `broadcast` of f32, checks each result, and says of its node `wire NODE SENT
//!   RECEIVED`: bytes on the node's interface from the first round to the last. Rank 0 also says `seconds …`, one figure a round.
//! - `lab_rank marked ELEMENTS`: reduces, broadcasts and sends f32 that all are [`MARK`].
//! - `lab_rank endless ELEMENTS`: reduces until something is wrong, says `under way` after the first round, and then what is wrong.
//! - `lab_rank late RANK GO PLACE …`: as one of these; the rank of that number does not join before there is something at the path GO, and where the
//!   ranks meet is written to the path PLACE.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use eirene_train_lab::INTERFACE;
use eirene_train_launch::{Environment, Launch, variables};
use eirene_train_runtime::{Call, Collective, DType, Group, Options, Part, ReduceOp, Tuning, World};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What is looked for on the wire: four times this in a row.
const MARK: f32 = f32::from_bits(u32::from_le_bytes(*b"MARK"));

const ALLOWED: Duration = Duration::from_mins(1);

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["late", rank, go, place, rest @ ..] = words.as_slice() {
        late(rank, Path::new(go), Path::new(place))?;
        words = rest.to_vec();
    }
    let environment = Environment::of_this_process();
    let launch = Launch::detect(&environment)?;
    let options = Options { timeout: ALLOWED, ..Options::of_environment(&environment, Tuning::Off)? };
    let world = World::join(&launch, &options)?;
    let group = world.everybody(ALLOWED)?;
    match words.as_slice() {
        ["wire", collective, elements, rounds] => wire(&world, &group, collective, elements.parse()?, rounds.parse()?)?,
        ["marked", elements] => marked(&group, elements.parse()?)?,
        ["endless", elements] => endless(&world, &group, elements.parse()?),
        _ => return Err("the head of this file says how it is used".into()),
    }
    world.leave();
    Ok(())
}

/// Tells where ranks meet, and waits if this is the one that comes late.
fn late(rank: &str, go: &Path, place: &Path) -> Outcome {
    if std::env::var(variables::RANK)? == rank {
        fs::write(place, std::env::var(variables::MEETING)? + "\n")?;
        while !go.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// A call on one buffer, in place.
#[expect(unsafe_code, reason = "the buffer outlives the call")]
fn run(group: &Group, collective: Collective, buffer: &mut [f32]) -> Result<(), eirene_train_runtime::Error> {
    let part = vec![Part { address: buffer.as_mut_ptr() as usize, elements: buffer.len() }];
    let call = match collective {
        Collective::Barrier => Call::barrier(),
        _ => Call { collective, dtype: DType::F32, op: ReduceOp::Sum, input: part.clone(), output: part },
    };
    // SAFETY: the buffer lives until the call is over and nobody else uses it.
    unsafe { group.run(&call, ALLOWED) }
}

fn wire(world: &World, group: &Group, collective: &str, elements: usize, rounds: usize) -> Outcome {
    let ranks = world.size() as usize;
    let (collective, factor) = match collective {
        "allreduce" => (Collective::AllReduce, ranks * (ranks + 1) / 2),
        "broadcast" => (Collective::Broadcast { root: 0 }, 1),
        other => return Err(format!("`{other}` is neither `allreduce` nor `broadcast`").into()),
    };
    let value = |factor: usize, at: usize| (factor * (at % 7 + 1)) as f32;
    let mut buffer = vec![0.0_f32; elements];
    let barrier = || run(group, Collective::Barrier, &mut []);
    // The first round works out the schedule.
    run(group, collective, &mut buffer)?;
    let mut seconds = Vec::with_capacity(rounds);
    barrier()?;
    let before = interface()?;
    for round in 0..rounds {
        let own = world.rank() as usize + 1;
        buffer.iter_mut().enumerate().for_each(|(at, place)| *place = value(own, at + round));
        barrier()?;
        let began = Instant::now();
        run(group, collective, &mut buffer)?;
        seconds.push(began.elapsed().as_secs_f64());
        let wrong = buffer.iter().enumerate().find(|(at, is)| is.to_bits() != value(factor, at + round).to_bits());
        if let Some((at, is)) = wrong {
            return Err(format!("element {at} is {is}, not {}", value(factor, at + round)).into());
        }
    }
    barrier()?;
    let after = interface()?;
    if world.local_rank() == 0 {
        println!("wire {} {} {}", world.node(), after.0 - before.0, after.1 - before.1);
    }
    if world.rank() == 0 {
        println!("seconds {}", seconds.iter().map(|round| format!("{round:.4}")).collect::<Vec<_>>().join(" "));
    }
    // Nobody leaves while another still needs it.
    barrier()?;
    Ok(())
}

#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn marked(group: &Group, elements: usize) -> Outcome {
    let mut buffer = vec![MARK; elements];
    run(group, Collective::AllReduce, &mut buffer)?;
    buffer.fill(MARK);
    run(group, Collective::Broadcast { root: 0 }, &mut buffer)?;
    let (size, mut got) = (group.size(), vec![0.0_f32; elements]);
    let (to, from) = ((group.rank() + 1) % size, (group.rank() + size - 1) % size);
    // SAFETY: both buffers live until the works are over.
    let works = unsafe {
        let part = |address| Part { address, elements };
        let received = group.receive(Some(from), 1, part(got.as_mut_ptr() as usize), DType::F32, ALLOWED)?;
        [group.send(to, 1, part(buffer.as_ptr() as usize), DType::F32, ALLOWED)?, received]
    };
    works.map(|work| work.wait(None)).into_iter().collect::<Result<(), _>>()?;
    if got != buffer {
        return Err("what was received is not what was sent".into());
    }
    run(group, Collective::Barrier, &mut [])?;
    Ok(())
}

/// Bytes that this node's interface has sent and received.
fn interface() -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let table = fs::read_to_string("/proc/self/net/dev")?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'));
    let counts: Vec<u64> = line.unwrap_or_default().split_whitespace().flat_map(str::parse).collect();
    match (counts.get(8), counts.first()) {
        (Some(sent), Some(received)) => Ok((*sent, *received)),
        _ => Err("this is no emulated node".into()),
    }
}

fn endless(world: &World, group: &Group, elements: usize) {
    let mut buffer = vec![0.0_f32; elements];
    for round in 0_u64.. {
        match run(group, Collective::AllReduce, &mut buffer) {
            Ok(()) if round == 0 => println!("under way {}", world.rank()),
            Ok(()) => {}
            Err(error) => {
                println!("{error}");
                return;
            }
        }
    }
}
