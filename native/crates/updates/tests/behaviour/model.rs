//! Whatever is done with a device's updates, in any order and with crashes in between: they hold what a small model
//! says, and nothing is lost that was promised.
//!
//! Fault model: SIGKILL, which leaves the page cache, and of the last write any part; power loss, which leaves what was
//! synced and any part of the rest. The databases are a part of the model: what is folded is in them, and durable in
//! them when the model says so.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{
    Columns, Content, ask, content, database, disk, encode, limited, merge, merge_all, open, stored, take,
};
use proptest::prelude::*;
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_updates::{Config, OutAlready, Refused, Updates};

const DATABASES: usize = 3;
const ROWS: usize = 40;
const FOLD_ROWS: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Open(usize),
    Close(usize),
    CloseAll,
    Take(usize, Vec<(String, Columns)>),
    TakeOut(usize),
    Folded(usize, bool),
    Forget(usize),
    Sync,
    /// Fold everything, make the databases durable, and let files go.
    Settle,
    /// Make the databases durable and let files go, although nothing was folded for it.
    LetGo,
    /// SIGKILL in the middle of the write of these rows: so many thousandths of them are in the file.
    Kill(usize, Vec<(String, Columns)>, u64),
    Power,
}

fn batch() -> impl Strategy<Value = Vec<(String, Columns)>> {
    let row = ("[a-l]", 1..8_u64, any::<bool>(), 0..3_u64, "[xy]?", "[tu]?").prop_map(
        |(name, timestamp, deleted, size, etag, content_type)| (name, (timestamp, deleted, size, etag, content_type)),
    );
    prop::collection::vec(row, 1..6)
}

fn op() -> impl Strategy<Value = Op> {
    let number = 0..DATABASES;
    prop_oneof![
        4 => number.clone().prop_map(Op::Open),
        1 => number.clone().prop_map(Op::Close),
        1 => Just(Op::CloseAll),
        12 => (number.clone(), batch()).prop_map(|(number, rows)| Op::Take(number, rows)),
        4 => number.clone().prop_map(Op::TakeOut),
        4 => (number.clone(), any::<bool>()).prop_map(|(number, merged)| Op::Folded(number, merged)),
        1 => number.clone().prop_map(Op::Forget),
        3 => Just(Op::Sync),
        2 => Just(Op::Settle),
        2 => Just(Op::LetGo),
        1 => (number, batch(), 0..=1000_u64).prop_map(|(number, rows, part)| Op::Kill(number, rows, part)),
        1 => Just(Op::Power),
    ]
}

type All = BTreeMap<usize, Content>;

#[derive(Default)]
struct Model {
    open: BTreeSet<usize>,
    held: All,
    out: All,
    /// How often a database was said to be due since its rows were taken out.
    said: BTreeMap<usize, usize>,
    /// The databases, and what of them is durable.
    folded: All,
    folded_durably: All,
    /// What was answered as taken, also in this life of the process, and as durable; and what there ever was.
    taken: All,
    of_this_life: All,
    durable: All,
    ever: All,
}

impl Model {
    fn rows(&self) -> usize {
        self.held.values().chain(self.out.values()).map(Content::len).sum()
    }

    fn add(all: &mut All, number: usize, rows: &[(String, Columns)]) {
        let content = all.entry(number).or_default();
        rows.iter().for_each(|(name, columns)| merge(content, name, &stored(columns.clone())));
    }

    fn fold(&mut self, number: usize) {
        for rows in [self.held.remove(&number), self.out.remove(&number)].into_iter().flatten() {
            merge_all(self.folded.entry(number).or_default(), &rows);
        }
        self.said.remove(&number);
    }
}

struct World {
    disk: Arc<SimulatedDisk>,
    updates: Updates,
    model: Model,
    config: Config,
}

impl World {
    fn new(seed: u64) -> Self {
        let (disk, config) = (disk(seed), limited(ROWS, FOLD_ROWS));
        let updates = open(&disk, config);
        Self { disk, updates, model: Model::default(), config }
    }

    fn take(&mut self, number: usize, rows: &[(String, Columns)]) {
        let outcome = take(&self.updates, database(number), encode(rows));
        let model = &mut self.model;
        if !model.open.contains(&number) {
            assert!(matches!(outcome, Err(Refused::NotTaken(_))), "{outcome:?}");
        } else if model.rows() + rows.len() > ROWS {
            assert!(matches!(outcome, Err(Refused::Busy(_))), "{outcome:?}");
        } else {
            outcome.unwrap();
            for all in [&mut model.held, &mut model.taken, &mut model.of_this_life, &mut model.ever] {
                Model::add(all, number, rows);
            }
        }
    }

    fn take_out(&mut self, number: usize) {
        let outcome = self.updates.take_out(&database(number));
        if self.model.out.contains_key(&number) {
            assert_eq!(outcome, Err(OutAlready));
            return;
        }
        let expected = self.model.held.remove(&number);
        assert_eq!(outcome.unwrap().map(|rows| content(&rows)), expected);
        if let Some(rows) = expected {
            self.model.out.insert(number, rows);
            self.model.said.remove(&number);
        }
    }

    fn folded(&mut self, number: usize, merged: bool) {
        self.updates.folded(&database(number), merged);
        let Some(rows) = self.model.out.remove(&number) else { return };
        if merged {
            merge_all(self.model.folded.entry(number).or_default(), &rows);
        } else {
            let held = self.model.held.entry(number).or_default();
            merge_all(held, &rows);
            // Who puts back comes again by itself.
            self.model.said.insert(number, 1 + usize::from(held.len() >= FOLD_ROWS));
        }
    }

    fn settle(&mut self) {
        for found in self.updates.databases() {
            let number = (0..DATABASES).find(|number| database(*number) == found).unwrap();
            self.updates.folded(&found, true);
            drop(self.updates.take_out(&found).unwrap());
            self.updates.folded(&found, true);
            self.model.fold(number);
        }
        assert_eq!(self.model.rows(), 0, "all of them were among the databases with rows");
        self.model.folded_durably.clone_from(&self.model.folded);
        self.updates.durable_in_databases(self.updates.mark());
        self.sync();
        assert_eq!((self.updates.status().journal_files, self.updates.status().journal_bytes), (0, 0));
    }

    fn sync(&mut self) {
        self.updates.sync();
        for (number, rows) in &self.model.of_this_life {
            merge_all(self.model.durable.entry(*number).or_default(), rows);
        }
    }

    /// The next process finds this disk, and the databases this content.
    fn restart(&mut self, disk: Arc<SimulatedDisk>, folded: All, folded_durably: All, promised: &All) {
        self.updates = open(&disk, self.config);
        self.disk = disk;
        let due: Vec<_> = self.updates.due().into_iter().map(|(database, _)| database).collect();
        let model = std::mem::take(&mut self.model);
        let (mut held, mut have) = (All::new(), folded.clone());
        for number in 0..DATABASES {
            let rows = crate::common::held(&self.updates, &database(number));
            let have = have.entry(number).or_default();
            merge_all(have, &rows);
            let (promised, ever) = (promised.get(&number), model.ever.get(&number));
            for (name, columns) in promised.into_iter().flatten() {
                let mut more = Content::from([(name.clone(), have[name].clone())]);
                merge(&mut more, name, columns);
                assert_eq!(more[name], have[name], "{name} of database {number} is older than what was promised");
            }
            for (name, columns) in have.iter() {
                let mut all = ever.unwrap().clone();
                merge(&mut all, name, columns);
                assert_eq!(&all, ever.unwrap(), "{name} of database {number} was never sent");
            }
            if !rows.is_empty() {
                held.insert(number, rows);
            }
        }
        let said = held.iter().map(|(number, rows)| (*number, 1 + usize::from(rows.len() >= FOLD_ROWS))).collect();
        // What the next process has found, it has: it is in the page cache, or in the databases.
        self.model = Model {
            held,
            said,
            folded,
            folded_durably,
            taken: have,
            durable: model.durable,
            ever: model.ever,
            ..Model::default()
        };
        assert!(self.model.held.keys().all(|number| due.contains(&database(*number))), "found, and not due");
    }

    fn kill(&mut self, number: usize, rows: &[(String, Columns)], part: u64) {
        let before: BTreeMap<String, u64> = self.disk.files().into_iter().collect();
        let (taken, folded) = (self.model.taken.clone(), self.model.folded.clone());
        self.take(number, rows);
        let left = self.disk.copy();
        for (path, size) in left.files() {
            let had = before.get(&path).copied().unwrap_or(0);
            let kept = had + (size - had) * part / 1000;
            left.open(&path).unwrap().truncate(kept).unwrap();
        }
        let folded_durably = self.model.folded_durably.clone();
        self.restart(left, folded, folded_durably, &taken);
    }

    fn power(&mut self) {
        let left = self.disk.after_crash(Faults::default());
        let (folded, durable) = (self.model.folded_durably.clone(), self.model.durable.clone());
        self.restart(left, folded.clone(), folded, &durable);
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Open(number) => {
                self.updates.open_database(database(number));
                self.model.open.insert(number);
            }
            Op::Close(number) => {
                self.updates.close_database(&database(number));
                self.model.open.remove(&number);
            }
            Op::CloseAll => {
                self.updates.close_all("the device is full");
                self.model.open.clear();
            }
            Op::Take(number, rows) => self.take(number, &rows),
            Op::TakeOut(number) => self.take_out(number),
            Op::Folded(number, merged) => self.folded(number, merged),
            Op::Forget(number) => {
                self.updates.forget(&database(number));
                let model = &mut self.model;
                model.open.remove(&number);
                for all in [&mut model.held, &mut model.out, &mut model.folded, &mut model.folded_durably] {
                    all.remove(&number);
                }
                // Nothing is promised for what is gone.
                model.taken.remove(&number);
                model.of_this_life.remove(&number);
                model.durable.remove(&number);
                model.said.remove(&number);
            }
            Op::Sync => self.sync(),
            Op::Settle => self.settle(),
            Op::LetGo => {
                self.model.folded_durably.clone_from(&self.model.folded);
                self.updates.durable_in_databases(self.updates.mark());
            }
            Op::Kill(number, rows, part) => self.kill(number, &rows, part),
            Op::Power => self.power(),
        }
        self.check();
    }

    fn check(&mut self) {
        let status = self.updates.status();
        assert_eq!(status.rows, self.model.rows());
        assert_eq!(status.open, self.model.open.len());
        assert_eq!(status.failed, None);
        for (found, many) in self.updates.due() {
            let number = (0..DATABASES).find(|number| database(*number) == found).unwrap();
            let said = self.model.said.entry(number).or_default();
            *said = (*said).max(1 + usize::from(many));
        }
        for number in 0..DATABASES {
            let held = self.model.held.get(&number).map_or(0, Content::len);
            let has = held > 0 || self.model.out.contains_key(&number);
            assert_eq!(self.updates.has(&database(number)), has);
            let said = self.model.said.get(&number).copied().unwrap_or(0);
            assert!(said >= usize::from(held > 0) + usize::from(held >= FOLD_ROWS), "{held} rows, said {said} times");
            assert!(said <= 3, "said again and again");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(seed in any::<u64>(), ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new(seed);
        ops.into_iter().for_each(|op| world.run(op));
    }

    #[test]
    fn a_merge_has_no_order(rows in prop::collection::vec(batch(), 1..4), turn in 0..4_usize) {
        let disk = disk(1);
        let updates = open(&disk, crate::common::config());
        let mut expected = Content::new();
        for batch in &rows {
            batch.iter().for_each(|(name, columns)| merge(&mut expected, name, &stored(columns.clone())));
        }
        let mut turned = rows.clone();
        turned.rotate_left(turn % rows.len());
        turned.push(rows[0].clone());
        for (number, batches) in [rows, turned].iter().enumerate() {
            updates.open_database(database(number));
            for batch in batches {
                let answers = ask(&updates, take(&updates, database(number), encode(batch)).unwrap());
                updates.sync();
                prop_assert_eq!(&*answers.lock().unwrap(), &[Ok(())]);
            }
            prop_assert_eq!(&crate::common::held(&updates, &database(number)), &expected);
        }
    }
}
