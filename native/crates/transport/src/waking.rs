//! I/O threads are woken once for many commands.
//!
//! Waking a sleeping thread costs both sides about as much as a small request, and a thread that is woken for the first
//! of several commands has done that one, and sleeps again, before the second one is there. So whoever leaves several
//! commands in one go does it inside [`together`].

use std::cell::RefCell;
use std::sync::Arc;

/// What a thread shares with those that leave commands to it.
pub(crate) trait Sleeper: Send + Sync {
    /// Wake the thread if it sleeps.
    fn nudge(&self);
}

thread_local! {
    /// The threads that have to be woken at the end; None outside of `together`.
    static LATER: RefCell<Option<Vec<Arc<dyn Sleeper>>>> = const { RefCell::new(None) };
}

/// Wakes them, also after a panic.
struct Waking;

impl Drop for Waking {
    fn drop(&mut self) {
        let later = LATER.with_borrow_mut(Option::take);
        later.into_iter().flatten().for_each(|sleeper| sleeper.nudge());
    }
}

/// Do something that makes calls or answers requests. I/O threads that sleep are woken for them after it, so it must
/// not wait for any of them.
pub fn together<T>(work: impl FnOnce() -> T) -> T {
    let is_outermost = LATER.with_borrow_mut(|later| {
        let is_outermost = later.is_none();
        later.get_or_insert_default();
        is_outermost
    });
    let _waking = is_outermost.then(|| Waking);
    work()
}

/// Wake a thread for a command, now or at the end of `together`. What a thread still holds when it ends may call this.
pub(crate) fn wake(sleeper: Arc<dyn Sleeper>) {
    // Where the thread's variables are gone already, nobody would wake it later.
    let is_left = LATER.try_with(|later| {
        let mut later = later.borrow_mut();
        let Some(later) = later.as_mut() else { return false };
        if !later.iter().any(|other| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&sleeper))) {
            later.push(Arc::clone(&sleeper));
        }
        true
    });
    if !is_left.unwrap_or(false) {
        sleeper.nudge();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::command::{Command, Shared};
    use crate::key::Key;
    use crate::pool::{Chunk, Hook, HookOf, Pool};

    fn asleep() -> Arc<Shared> {
        let shared = Arc::new(Shared::new().expect("a descriptor"));
        shared.asleep.store(true, SeqCst);
        shared
    }

    fn of(offset: u64) -> HookOf {
        HookOf { connection: Key { index: 0, generation: 0 }, stream: 1, offset, bytes: 10, lent: true }
    }

    /// How often it was woken since the last look.
    fn wakes(shared: &Shared) -> u64 {
        let mut counter = [0; 8];
        rustix::io::read(&shared.wake, &mut counter).map_or(0, |_| u64::from_ne_bytes(counter))
    }

    #[test]
    fn a_thread_is_woken_once_for_all_that_is_left_together() {
        let (one, other, none) = (asleep(), asleep(), asleep());
        together(|| {
            one.post(Command::Leave);
            together(|| other.post(Command::Leave));
            one.post(Command::Leave);
            assert_eq!((wakes(&one), wakes(&other)), (0, 0));
        });
        assert_eq!((wakes(&one), wakes(&other), wakes(&none)), (1, 1, 0));
        assert_eq!(one.lock().commands.len(), 2);
    }

    #[test]
    fn chunks_that_are_let_go_together_wake_a_thread_once() {
        let (shared, pool) = (asleep(), Pool::new(4 << 20).expect("memory"));
        let chunk = |offset| {
            let hook = Hook { whom: shared.clone(), of: of(offset) };
            pool.small(10).expect("memory").freeze_with(10, Some(hook))
        };
        let (one, other, last) = (chunk(0), chunk(10), chunk(20));
        together(|| {
            drop((one, other));
            assert_eq!(wakes(&shared), 0);
        });
        assert_eq!((wakes(&shared), shared.lock().commands.len()), (1, 2));
        shared.asleep.store(true, SeqCst);
        drop(last);
        assert_eq!(wakes(&shared), 1);
    }

    #[test]
    fn what_a_thread_holds_at_its_end_is_let_go() {
        thread_local! {
            static HELD: RefCell<Option<Chunk>> = const { RefCell::new(None) };
        }
        // Variables of a thread are destroyed in an order that depends on which of them was used first.
        for is_held_first in [true, false] {
            let shared = asleep();
            let hook = Hook { whom: shared.clone(), of: of(0) };
            let ended = std::thread::spawn(move || {
                let pool = Pool::new(4 << 20).expect("memory");
                let hold = || HELD.set(pool.small(10).map(|buffer| buffer.freeze_with(10, Some(hook))));
                if is_held_first {
                    hold();
                    together(|| {});
                } else {
                    together(|| {});
                    hold();
                }
            });
            ended.join().expect("without a panic");
            assert_eq!(wakes(&shared), 1, "{is_held_first}");
        }
    }

    #[test]
    fn outside_and_after_a_panic_it_is_woken_at_once() {
        let shared = asleep();
        let panicked = std::panic::catch_unwind(|| {
            together(|| {
                shared.post(Command::Leave);
                panic!("in the middle");
            });
        });
        assert!(panicked.is_err());
        assert_eq!(wakes(&shared), 1);
        shared.asleep.store(true, SeqCst);
        shared.post(Command::Leave);
        assert_eq!(wakes(&shared), 1);
    }
}
