//! The thread that works on what is under way while nobody waits for it.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Inner;
use crate::memory::bell::{Turn, Waiting, now};

/// After so long without work the progress thread looks whether the world is still wanted.
const IDLE: Duration = Duration::from_millis(200);

/// Works until the world is left.
pub(super) fn progress(world: &Weak<Inner>) {
    loop {
        // It does not keep the world: between two looks the last user may let go of it.
        let Some(world) = world.upgrade() else { return };
        if world.stop.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = Waiting::new(world.bell(), world.patience().modest(), Some(now() + IDLE));
        loop {
            if world.stop.load(Ordering::Acquire) {
                return;
            }
            let is_mine = !world.is_idle() && world.helpers.load(Ordering::Acquire) == 0;
            if is_mine && world.poll() {
                waiting.progressed();
                continue;
            }
            let ready = || {
                let is_mine = !world.is_idle() && world.helpers.load(Ordering::Acquire) == 0;
                is_mine && world.poll()
            };
            // With nothing to work on it must not wake up for what others may send: all that it would find is an idle core's time.
            let turn = if is_mine { waiting.turn(ready) } else { waiting.doze(ready) };
            match turn {
                Turn::Again => {}
                Turn::Look => {
                    if is_mine {
                        world.look_at_all();
                    }
                }
                Turn::TooLong => break,
            }
        }
    }
}
