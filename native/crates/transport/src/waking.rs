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

/// Wake a thread for a command, now or at the end of `together`.
pub(crate) fn wake(sleeper: Arc<dyn Sleeper>) {
    LATER.with_borrow_mut(|later| match later {
        None => sleeper.nudge(),
        Some(later) if later.iter().any(|other| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&sleeper))) => {}
        Some(later) => later.push(sleeper),
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::command::{Command, Shared};

    fn asleep() -> Arc<Shared> {
        let shared = Arc::new(Shared::new().expect("a descriptor"));
        shared.asleep.store(true, SeqCst);
        shared
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
