//! Chooses which operation begins next, and on which object or container.

use super::{Engine, World};
use crate::plan::{Api, Kind, Phase, Plan};

impl<W: World> Engine<'_, W> {
    /// The next operation; None when there is none any more.
    pub(super) fn choose(&mut self) -> Option<(Kind, u32)> {
        let chosen = match self.phase {
            // Folders come with their first object, and nobody minds empty ones.
            Phase::CreateContainers | Phase::DeleteContainers if matches!(self.plan.target.api, Api::Files) => None,
            Phase::CreateContainers | Phase::DeleteContainers => {
                let container = self.next_container;
                let kind = match self.phase {
                    Phase::CreateContainers => Kind::CreateContainer,
                    _ => Kind::DeleteContainer,
                };
                (container < self.plan.containers).then(|| {
                    self.next_container += self.container_step;
                    (kind, container)
                })
            }
            Phase::Fill(_) if self.fill_left == 0 => None,
            Phase::Fill(_) => self.population.fresh().map(|number| {
                self.fill_left -= 1;
                (Kind::Create, number)
            }),
            Phase::Empty => self.population.take_last().map(|number| (Kind::Delete, number)),
            Phase::Measure(_) => self.choose_of_mix(),
        };
        if chosen.is_none() {
            self.is_ending = true;
        }
        chosen
    }

    pub(super) fn draw_kind(&mut self) -> Option<Kind> {
        let place = self.random.unit();
        self.mix.iter().find(|(upto, _)| place <= *upto).or(self.mix.last()).map(|(_, kind)| *kind)
    }

    pub(super) fn choose_of_mix(&mut self) -> Option<(Kind, u32)> {
        let drawn = self.draw_kind()?;
        // What needs an object where none is free gives way to something else.
        for place in 0..=self.mix.len() {
            let kind = if place == 0 { drawn } else { self.mix[place - 1].1 };
            let number = match kind {
                Kind::Create => self.population.fresh(),
                Kind::Read | Kind::Update | Kind::Head => self.population.pick(&mut self.random),
                Kind::Delete => self.population.take(&mut self.random),
                Kind::List => Some(self.population.any(&mut self.random).unwrap_or(0)),
                Kind::CreateContainer | Kind::DeleteContainer => None,
            };
            if let Some(number) = number {
                return Some((kind, number));
            }
        }
        self.tally.ended_early = Some(match drawn {
            Kind::Create => "there are as many objects as one thread keeps track of",
            _ => "no object was left: store more in advance, or create as many as are deleted",
        });
        None
    }

    pub(super) fn place(&self, kind: Kind, number: u32) -> String {
        let Plan { target, prefix, containers, page, .. } = self.plan;
        match kind {
            Kind::CreateContainer | Kind::DeleteContainer => {
                format!("{}/{prefix}-{number:06}", target.path)
            }
            Kind::List => {
                let (container, after) = (number % containers, name(number));
                let query = match target.api {
                    Api::S3(_) => format!("list-type=2&max-keys={page}&start-after={after}"),
                    Api::Swift | Api::Files => format!("limit={page}&marker={after}"),
                };
                format!("{}/{prefix}-{container:06}?{query}", target.path)
            }
            _ => format!("{}/{prefix}-{:06}/{}", target.path, number % containers, name(number)),
        }
    }
}

/// The name of an object.
pub(super) fn name(number: u32) -> String {
    format!("{number:010}")
}
