//! Which objects there are: numbers of those that can be read, of those in use, and of those that nobody knows about.

use std::collections::HashMap;

use crate::random::Random;

/// Objects that one thread keeps track of; a run ends when there are more.
pub(crate) const MAX_OBJECTS: usize = 100_000_000;
/// How often an object that nobody uses is looked for by chance.
const DRAWS: usize = 16;

/// The objects of one thread: their numbers are `offset`, `offset + stride` and so on.
#[derive(Debug)]
pub(crate) struct Population {
    offset: u32,
    stride: u32,
    /// How many numbers were given away.
    given: u32,
    live: Vec<u32>,
    /// Operations in flight, by object.
    busy: HashMap<u32, u32>,
    /// After an error: they may or may not exist.
    doubtful: Vec<u32>,
    /// Those that could not be deleted in this phase.
    kept: Vec<u32>,
}

impl Population {
    pub(crate) fn new(offset: u32, stride: u32) -> Self {
        Self {
            offset,
            stride,
            given: 0,
            live: Vec::new(),
            busy: HashMap::new(),
            doubtful: Vec::new(),
            kept: Vec::new(),
        }
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// A number that no object had before; None when there are as many as one thread keeps track of.
    pub(crate) fn fresh(&mut self) -> Option<u32> {
        if self.live.len() + self.doubtful.len() + self.busy.len() >= MAX_OBJECTS {
            return None;
        }
        let number = self.given.checked_mul(self.stride)?.checked_add(self.offset)?;
        self.given += 1;
        self.hold(number);
        Some(number)
    }

    /// A number that an object has or had; None when there was none yet.
    pub(crate) fn any(&self, random: &mut Random) -> Option<u32> {
        (self.given > 0).then(|| random.below(u64::from(self.given)) as u32 * self.stride + self.offset)
    }

    /// An object to read or to write over, which nobody deletes before it is released.
    pub(crate) fn pick(&mut self, random: &mut Random) -> Option<u32> {
        if self.live.is_empty() {
            return None;
        }
        let number = self.live[random.below(self.live.len() as u64) as usize];
        self.hold(number);
        Some(number)
    }

    /// An object to delete, which nobody uses, and nobody will.
    pub(crate) fn take(&mut self, random: &mut Random) -> Option<u32> {
        if self.live.is_empty() {
            return None;
        }
        let first = random.below(self.live.len() as u64) as usize;
        let drawn =
            (0..DRAWS).map(|draw| if draw == 0 { first } else { random.below(self.live.len() as u64) as usize });
        let mut found = drawn.into_iter().find(|place| !self.busy.contains_key(&self.live[*place]));
        if found.is_none() {
            // As many as can be in use, and one more.
            found =
                (0..self.live.len().min(self.busy.len() + 1)).find(|place| !self.busy.contains_key(&self.live[*place]));
        }
        let number = self.live.swap_remove(found?);
        self.hold(number);
        Some(number)
    }

    /// An object to delete in the end, doubtful ones too.
    pub(crate) fn take_last(&mut self) -> Option<u32> {
        let number = self.live.pop().or_else(|| self.doubtful.pop())?;
        self.hold(number);
        Some(number)
    }

    fn hold(&mut self, number: u32) {
        *self.busy.entry(number).or_default() += 1;
    }

    /// An operation has ended.
    pub(crate) fn release(&mut self, number: u32) {
        if let Some(uses) = self.busy.get_mut(&number) {
            *uses -= 1;
            if *uses == 0 {
                self.busy.remove(&number);
            }
        }
    }

    /// It exists from now on.
    pub(crate) fn created(&mut self, number: u32) {
        self.live.push(number);
    }

    /// It may or may not exist.
    pub(crate) fn doubt(&mut self, number: u32) {
        self.doubtful.push(number);
    }

    /// It could not be deleted: that is tried again in the next phase.
    pub(crate) fn keep(&mut self, number: u32) {
        self.kept.push(number);
    }

    /// Between two phases: nothing is in use.
    pub(crate) fn rest(&mut self) {
        self.busy.clear();
        self.doubtful.append(&mut self.kept);
    }

    /// How many can be read.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// How many may be left in the store.
    pub(crate) fn left(&self) -> usize {
        self.live.len() + self.doubtful.len() + self.kept.len()
    }
}
