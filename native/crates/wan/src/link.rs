//! One direction of a link: when a packet that is sent now arrives, or why it never does.

use crate::Nanos;
use crate::random::Random;

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Nanoseconds from the end of sending to arrival.
    pub delay: Nanos,
    /// The largest number of nanoseconds that a packet takes beyond the delay, evenly distributed. Packets stay in order.
    pub jitter: Nanos,
    /// Bytes per second.
    pub rate: f64,
    /// Bytes that may wait to be sent; a packet that finds no room is dropped, as by a router with a drop-tail queue.
    pub queue_bytes: u64,
    /// The share of packets that are lost, at least 0 and less than 1.
    pub loss: f64,
    /// Whether nothing passes.
    pub is_cut: bool,
}

impl Default for Shape {
    /// A link that is as good as none: 10 GB/s without delay.
    fn default() -> Self {
        Self { delay: 0, jitter: 0, rate: 1e10, queue_bytes: 64 << 20, loss: 0.0, is_cut: false }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It arrives at this time.
    Arrives(Nanos),
    /// The link is cut.
    Cut,
    /// It is lost on the way.
    Lost,
    /// The queue is full.
    Dropped,
}

/// What has passed a link, and what has not.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets that arrive.
    pub packets: u64,
    /// Bytes of packets that arrive, IP headers included.
    pub bytes: u64,
    /// Packets sent into a cut link.
    pub cut: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
}

/// One direction of a link.
#[derive(Default)]
pub struct Link {
    /// What it is like; may be changed while packets are under way, and counts for later ones.
    pub shape: Shape,
    /// What was counted.
    pub counts: Counts,
    /// When the last packet will have been sent.
    free_at: Nanos,
    /// When the last packet arrives.
    last: Nanos,
}

impl Link {
    /// Send a packet of `bytes`, and say what becomes of it.
    pub(crate) fn send(&mut self, now: Nanos, bytes: u64, random: &mut Random) -> Fate {
        let fate = self.fate(now, bytes, random);
        let counts = &mut self.counts;
        match fate {
            Fate::Arrives(_) => {
                counts.packets += 1;
                counts.bytes += bytes;
            }
            Fate::Cut => counts.cut += 1,
            Fate::Lost => counts.lost += 1,
            Fate::Dropped => counts.dropped += 1,
        }
        fate
    }

    fn fate(&mut self, now: Nanos, bytes: u64, random: &mut Random) -> Fate {
        let Shape { delay, jitter, rate, queue_bytes, loss, is_cut } = self.shape;
        if is_cut {
            return Fate::Cut;
        }
        let waiting = self.free_at.saturating_sub(now) as f64 / 1e9 * rate;
        if waiting + bytes as f64 > queue_bytes as f64 {
            return Fate::Dropped;
        }
        // What is lost has been sent, and has taken its time of the link.
        self.free_at = self.free_at.max(now) + (bytes as f64 / rate * 1e9) as Nanos;
        if loss > 0.0 && random.share() < loss {
            return Fate::Lost;
        }
        let late = if jitter > 0 { (random.share() * jitter as f64) as Nanos } else { 0 };
        self.last = self.last.max(self.free_at + delay + late);
        Fate::Arrives(self.last)
    }
}
