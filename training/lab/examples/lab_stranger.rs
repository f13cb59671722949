//! Somebody who was not asked: knows where ranks meet (`tcp://HOST:PORT`) and not their secret. Floods the door, answers with noise and with
//! what the door said to others, and says how often that let it in; then, once told, whether anybody still listens.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Connections of each kind.
const EACH: usize = 100;
/// Bytes that a door says to everybody.
const GREETING: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::args().nth(1).unwrap_or_default();
    let place = place.strip_prefix("tcp://").ok_or("say where ranks meet")?;
    let knock = || {
        let stream = TcpStream::connect(place)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        std::io::Result::Ok(stream)
    };
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..EACH {
        silent.push(knock()?);
    }
    let mut overheard = [0; GREETING];
    silent[0].read_exact(&mut overheard)?;
    let mut let_in = 0;
    for number in 0..2 * EACH {
        let mut stream = knock()?;
        let noise: Vec<u8> = (0..700).map(|at| (at * 31 + number * 17) as u8).collect();
        // Noise, or the door's own greeting as an answer, with noise behind it.
        let answer = if number % 2 == 0 { noise } else { [&overheard[..], &noise].concat() };
        let _ = stream.write_all(&answer);
        let_in += usize::from(is_let_in(&mut stream));
    }
    println!("knocked {}, let in {let_in}", 3 * EACH);
    std::io::stdin().read_line(&mut String::new())?;
    drop(silent);
    println!("{}", if TcpStream::connect(place).is_err() { "closed" } else { "open" });
    Ok(())
}

/// Whether the door says more than its greeting, or keeps the connection.
fn is_let_in(stream: &mut TcpStream) -> bool {
    let mut said = Vec::new();
    let is_kept = stream.read_to_end(&mut said).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    is_kept || said.len() > GREETING
}
