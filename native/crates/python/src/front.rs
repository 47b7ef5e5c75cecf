//! The front's bindings: grants and rings in, connections and records out. Python is not called for a request of the
//! front.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use swiftlet_erasure::Scheme;
use swiftlet_front::grants::{Granted, Holder, Seen};
use swiftlet_front::head::parse;
use swiftlet_front::name::split;
use swiftlet_front::{
    Amounts, Batch, Changes as Counters, Coding, Counted, Device, Front as Inner, Handed, Handshakes, Level, Listed,
    Policy, Records, Secure, Secured, Settings, Site, Spent,
};
use swiftlet_store::model::Key;

use crate::buffer::Bytes;
use crate::coded::CodedDevices;
use crate::peers::TransportPeer;
use crate::store::Place;
use crate::values::{os_error, seconds};

/// A descriptor of our own for what Python has open.
fn duplicate(descriptor: RawFd) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(PyValueError::new_err("the number is not a file descriptor"));
    }
    // SAFETY: the caller has it open as long as this call lasts, which is all that the borrow is used for.
    #[allow(unsafe_code, reason = "Python knows descriptors by their numbers")]
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map_err(os_error)
}

/// Method, status, bytes of both kinds of bodies, seconds, how many took up to each bound.
type CountedParts = (&'static str, u16, u64, u64, f64, Vec<u64>);

fn counted(counted: Counted) -> CountedParts {
    let Counted { method, status, received, sent, seconds, within } = counted;
    (method.name(), status, received, sent, seconds, within)
}

/// Tokens, container's name with its slashes, shares as bits, rows in JSON, places and timestamps, devices' numbers,
/// slices of room.
type MadeParts<'py> =
    (Vec<u64>, Bound<'py, PyBytes>, Vec<u32>, Bound<'py, PyBytes>, Vec<(Place, u64)>, Vec<Vec<u16>>, Vec<Vec<u64>>);

fn made(py: Python<'_>, batch: Batch) -> MadeParts<'_> {
    let Batch { tokens, container, shares, rows, written, devices, parts } = batch;
    let place = |(key, timestamp): (Key, u64)| ((key.policy, key.partition, key.digest), timestamp);
    let written = written.into_iter().map(place).collect();
    (tokens, PyBytes::new(py, &container), shares.to_vec(), PyBytes::new(py, &rows), written, devices, parts)
}

/// Token, client's address and port, the address and port that it connected to.
type SecuredParts = (u64, (String, u16), (String, u16));

/// Descriptor, bytes, bounces, whether a deletion has begun, the version that may be stored, what is known of a
/// connection with TLS.
type HandedParts<'py> = (RawFd, Bound<'py, PyBytes>, u32, bool, Option<u64>, Option<SecuredParts>);

fn handed(py: Python<'_>, handed: Handed) -> HandedParts<'_> {
    let address = |address: SocketAddr| (address.ip().to_string(), address.port());
    let secured = |Secured { token, remote, local }| (token, address(remote), address(local));
    let Handed { socket, bytes, bounces, deleted, stored, secured: with_tls } = handed;
    (socket.into_raw_fd(), PyBytes::new(py, &bytes), bounces, deleted, stored, with_tls.map(secured))
}

/// Objects and bytes.
type Both = (u64, u64);

/// For each pool its number, what is left, what was taken, and how often there was too little; for each container its
/// name with its slashes, slices and what of each is listed, the newest row and its timestamp; slices, what comes back
/// of each, and whether it has ended.
type SpentParts<'py> = (
    Vec<(u64, Both, Both, u64)>,
    Vec<(Bound<'py, PyBytes>, Vec<(u64, Both)>, Bound<'py, PyBytes>, u64)>,
    Vec<(u64, Both, bool)>,
);

/// Whether to write, token and prefix.
type HolderParts<'py> = (bool, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

fn holder(write: bool, token: &Bytes, prefix: &Bytes) -> Holder {
    (write, token.as_slice().to_vec(), prefix.as_slice().to_vec())
}

fn holders(py: Python<'_>, holders: Vec<Holder>) -> Vec<HolderParts<'_>> {
    let parts = |(write, token, prefix): Holder| (write, PyBytes::new(py, &token), PyBytes::new(py, &prefix));
    holders.into_iter().map(parts).collect()
}

/// Region, zone and node of a device by numbers, and whether it has any weight.
type SiteParts = (u32, u32, u32, bool);

fn sites_of(sites: Vec<Option<SiteParts>>) -> Vec<Option<Site>> {
    let site = |(region, zone, node, weighted)| Site { region, zone, node, weighted };
    sites.into_iter().map(|one| one.map(site)).collect()
}

/// The table of a ring, and its devices.
fn ring(
    part_power: u32,
    rows: &[Bytes],
    devices: Vec<Option<(PyRef<'_, TransportPeer>, String)>>,
    distances: &[u8],
) -> PyResult<Policy> {
    if !(distances.is_empty() || distances.len() == devices.len()) {
        return Err(PyValueError::new_err("there must be a distance for each device, or none"));
    }
    let far = distances.iter().copied().chain(std::iter::repeat(0));
    let device = |(one, far): (Option<(PyRef<'_, TransportPeer>, String)>, u8)| {
        one.map(|(peer, name)| Device::new(peer.peer(), &name).at(far))
    };
    let devices = devices.into_iter().zip(far).map(device).collect();
    let row =
        |bytes: &Bytes| bytes.as_slice().chunks_exact(2).map(|two| u16::from_ne_bytes([two[0], two[1]])).collect();
    let ring = Policy::new(part_power, rows.iter().map(row).collect(), devices);
    ring.map_err(|_| PyValueError::new_err("the rows are not the table of a ring"))
}

/// Counters of changes that forked processes share.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Changes(Arc<Counters>);

#[pymethods]
impl Changes {
    #[new]
    #[pyo3(signature = (slots, /))]
    fn new(slots: usize) -> PyResult<Self> {
        Ok(Self(Arc::new(Counters::new(slots).map_err(os_error)?)))
    }

    /// The value of a counter.
    #[pyo3(signature = (slot, /))]
    fn seen(&self, slot: usize) -> u64 {
        self.0.seen(slot)
    }

    /// Count a change.
    #[pyo3(signature = (slot, /))]
    fn tell(&self, slot: usize) {
        self.0.tell(slot);
    }
}

/// The thread that answers small requests.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Front(Inner);

#[pymethods]
impl Front {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "all of them are settings, named where they are given")]
    #[pyo3(signature = (secret, changes, *, nonce, keepalive_s, client_timeout_s, answer_timeout_s, store_timeout_s,
                        large_bytes, max_connections = 8192, max_handed = 1024, max_served = 50000, tls = None))]
    fn new(
        secret: (Vec<u8>, Vec<u8>),
        changes: PyRef<'_, Changes>,
        nonce: u16,
        keepalive_s: f64,
        client_timeout_s: f64,
        answer_timeout_s: f64,
        store_timeout_s: f64,
        large_bytes: u64,
        max_connections: usize,
        max_handed: usize,
        max_served: usize,
        tls: Option<(Bytes, Bytes, Bytes)>,
    ) -> PyResult<Self> {
        let settings = Settings {
            secret,
            nonce,
            store_timeout: seconds(store_timeout_s)?,
            large_bytes,
            keepalive: seconds(keepalive_s)?,
            client_timeout: seconds(client_timeout_s)?,
            answer_timeout: seconds(answer_timeout_s)?,
            max_connections,
            max_handed,
            max_served,
        };
        let changes = Arc::clone(&changes.0);
        let front = match tls {
            None => Inner::start(settings, changes),
            Some((certificate, key, secret)) => {
                let secure = Secure::new(certificate.as_slice(), key.as_slice(), secret.as_slice());
                Inner::start_secure(
                    settings,
                    changes,
                    secure.map_err(|error| PyValueError::new_err(error.to_string()))?,
                )
            }
        };
        Ok(Self(front.map_err(os_error)?))
    }

    /// Use this certificate and key, in PEM, for new connections.
    #[pyo3(signature = (certificate, key, /))]
    fn renew(&self, certificate: Bytes, key: Bytes) -> PyResult<()> {
        let renewed = self.0.renew(certificate.as_slice(), key.as_slice());
        renewed.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// How many TLS handshakes ended in which way.
    fn handshakes(&self) -> [(&'static str, u64); 6] {
        let Handshakes { full, resumed, plain, protocol, closed, late } = self.0.handshakes();
        [
            ("full", full),
            ("resumed", resumed),
            ("plain", plain),
            ("protocol", protocol),
            ("closed", closed),
            ("late", late),
        ]
    }

    /// Accept connections from a listening socket.
    #[pyo3(signature = (descriptor, /))]
    fn listen(&self, descriptor: RawFd) -> PyResult<()> {
        self.0.listen(duplicate(descriptor)?);
        Ok(())
    }

    /// Take a connection back from Python.
    #[pyo3(signature = (descriptor, bounces, token = None, /))]
    fn adopt(&self, descriptor: RawFd, bounces: u32, token: Option<u64>) {
        // SAFETY: the caller gives the descriptor away, as the treaty says.
        #[allow(unsafe_code, reason = "Python knows descriptors by their numbers")]
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        match token {
            None => self.0.adopt(socket, bounces),
            Some(token) => self.0.adopt_secured(token, socket, bounces),
        }
    }

    /// Readable while there are connections to fetch.
    fn fileno(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Fetch connections that were handed over, at most so many: descriptors, which then belong to the caller, bytes,
    /// bounces, whether devices may have carried out the DELETE that the bytes begin with, the version that they may
    /// have stored of the PUT that the bytes begin with, and for connections with TLS what `adopt` wants to know and where the client is.
    #[pyo3(signature = (most = usize::MAX, /))]
    fn handed<'py>(&self, py: Python<'py>, most: usize) -> Vec<HandedParts<'py>> {
        self.0.handed(most).into_iter().map(|one| handed(py, one)).collect()
    }

    /// Whether to write, token and prefix of a request that the front may answer, and that is not followed by more
    /// bytes; None for others.
    #[staticmethod]
    #[pyo3(signature = (begins, received, /))]
    fn asked<'py>(py: Python<'py>, begins: Bytes, received: usize) -> Option<HolderParts<'py>> {
        let asked = parse(begins.as_slice()).filter(|asked| asked.whole() == received && asked.keep_alive)?;
        let (prefix, _) = split(asked.target)?;
        let token = asked.token.unwrap_or_default();
        Some((asked.method.writes(), PyBytes::new(py, token), PyBytes::new(py, prefix)))
    }

    /// Objects and deletions that became durable.
    fn made<'py>(&self, py: Python<'py>) -> Vec<MadeParts<'py>> {
        self.0.made().into_iter().map(|batch| made(py, batch)).collect()
    }

    /// Report that rows are listed, or that Python answers the requests.
    #[pyo3(signature = (tokens, is_listed, /))]
    fn listed(&self, tokens: Vec<u64>, is_listed: bool) {
        self.0.listed(tokens, is_listed);
    }

    /// Connections that were handed over and not fetched.
    fn waiting(&self) -> usize {
        self.0.waiting()
    }

    /// Writes that devices carry out, or whose rows are being listed.
    fn storing(&self) -> usize {
        self.0.storing()
    }

    /// Reads for which a second device was asked since the last call.
    fn hedged(&self) -> u64 {
        self.0.hedged()
    }

    /// Answers that were sent: their lines, and their sums.
    #[pyo3(signature = (bounds_s, /))]
    fn records(&self, py: Python<'_>, bounds_s: Vec<f64>) -> (String, Vec<CountedParts>) {
        let Records { lines, counted: all } = py.detach(|| self.0.records(&bounds_s));
        // Paths are as a head may have them, which is ASCII.
        (String::from_utf8_lossy(&lines).into_owned(), all.into_iter().map(counted).collect())
    }

    /// Add a grant; returns whether there was room.
    #[pyo3(signature = (write, token, prefix, container, policy, reads, xxh3_etags, expiring, rows, awaited, seen, valid_s, pools, /))]
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a grant")]
    fn grant(
        &self,
        write: bool,
        token: Bytes,
        prefix: Bytes,
        container: Bytes,
        policy: u16,
        reads: bool,
        xxh3_etags: bool,
        expiring: bool,
        rows: Vec<u32>,
        awaited: u32,
        seen: (usize, u64),
        valid_s: f64,
        pools: Vec<u64>,
    ) -> PyResult<bool> {
        let (container, rows, pools) = (container.as_slice().into(), rows.into(), pools.into());
        let granted = Granted { container, policy, reads, xxh3_etags, expiring, rows, awaited, pools };
        let seen = Seen { slot: seen.0, at: seen.1 };
        Ok(self.0.grant(holder(write, &token, &prefix), granted, seen, seconds(valid_s)?))
    }

    /// Let grants that still hold go on, each for so many seconds from now.
    #[pyo3(signature = (grants, /))]
    fn extend(&self, grants: Vec<((bool, Bytes, Bytes), f64)>) -> PyResult<()> {
        let one = |((write, token, prefix), valid_s): &((bool, Bytes, Bytes), f64)| {
            Ok((holder(*write, token, prefix), seconds(*valid_s)?))
        };
        self.0.extend(&grants.iter().map(one).collect::<PyResult<Vec<_>>>()?);
        Ok(())
    }

    /// Whether there is a grant.
    #[pyo3(signature = (write, token, prefix, /))]
    fn has(&self, write: bool, token: Bytes, prefix: Bytes) -> bool {
        self.0.has(&holder(write, &token, &prefix))
    }

    /// Whether to write, token and prefix of requests that wait for a decision since the last call.
    fn undecided<'py>(&self, py: Python<'py>) -> Vec<HolderParts<'py>> {
        holders(py, self.0.undecided())
    }

    /// A decision was made: requests with it go on by their grant, or are handed over.
    #[pyo3(signature = (write, token, prefix, is_granted, /))]
    fn decided(&self, write: bool, token: Bytes, prefix: Bytes, is_granted: bool) {
        self.0.decided(holder(write, &token, &prefix), is_granted);
    }

    /// End grants in an account, or all.
    #[pyo3(signature = (account, /))]
    fn withdraw(&self, account: Option<Bytes>) {
        self.0.withdraw(account.as_ref().map(Bytes::as_slice));
    }

    /// Whether to write, token and prefix of each grant that was used since the last call.
    fn used<'py>(&self, py: Python<'py>) -> Vec<HolderParts<'py>> {
        holders(py, self.0.used())
    }

    /// Add a slice of room to a pool.
    #[pyo3(signature = (pool, slice, objects, bytes, valid_s, /))]
    fn lend(&self, pool: u64, slice: u64, objects: u64, bytes: u64, valid_s: f64) -> PyResult<()> {
        self.0.lend(pool, slice, Amounts { objects, bytes }, seconds(valid_s)?);
        Ok(())
    }

    /// Take no more of a pool.
    #[pyo3(signature = (pool, /))]
    fn recall(&self, pool: u64) {
        self.0.recall(pool);
    }

    /// What has become of room since the last call.
    fn spent<'py>(&self, py: Python<'py>) -> SpentParts<'py> {
        let Spent { levels, listed, returned } = self.0.spent();
        let both = |Amounts { objects, bytes }: Amounts| (objects, bytes);
        let level = |one: Level| (one.pool, both(one.left), both(one.taken), one.short);
        let listed = listed.into_iter().map(|Listed { container, slices, row, timestamp }| {
            let slices = slices.into_iter().map(|(slice, amounts)| (slice, both(amounts))).collect();
            (PyBytes::new(py, &container), slices, PyBytes::new(py, &row), timestamp)
        });
        let returned = returned.into_iter().map(|one| (one.slice, both(one.amounts), one.ended));
        (levels.into_iter().map(level).collect(), listed.collect(), returned.collect())
    }

    /// Set where a policy's objects are, and which devices are avoided.
    #[pyo3(signature = (policy, part_power, rows, devices, distances, sites, near, avoided, /))]
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a ring")]
    fn route(
        &self,
        policy: u16,
        part_power: u32,
        rows: Vec<Bytes>,
        devices: Vec<Option<(PyRef<'_, TransportPeer>, String)>>,
        distances: Vec<u8>,
        sites: Vec<Option<SiteParts>>,
        near: Option<u32>,
        avoided: Vec<u32>,
    ) -> PyResult<()> {
        if sites.len() != devices.len() {
            return Err(PyValueError::new_err("there must be a site for each device"));
        }
        let ring = ring(part_power, &rows, devices, &distances)?.with_sites(sites_of(sites), near);
        self.0.route(policy, Some(ring.avoiding(&avoided)));
        Ok(())
    }

    /// Set where a policy's coded objects are.
    #[pyo3(signature = (policy, part_power, rows, devices, coding, distances, sites, /))]
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a ring")]
    fn route_coded(
        &self,
        policy: u16,
        part_power: u32,
        rows: Vec<Bytes>,
        devices: PyRef<'_, CodedDevices>,
        coding: (usize, usize, usize, bool),
        distances: Vec<u8>,
        sites: Vec<Option<SiteParts>>,
    ) -> PyResult<()> {
        if distances.len() != sites.len() {
            return Err(PyValueError::new_err("there must be a distance and a site for each device"));
        }
        let (data, parity, cell_bytes, has_small) = coding;
        let scheme = Scheme::new(data, parity).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let coding = Coding::new(devices.devices(), (scheme, cell_bytes), has_small, distances);
        let whole = sites.iter().map(|_| None).collect();
        let ring = ring(part_power, &rows, whole, &[])?.with_sites(sites_of(sites), None);
        self.0.route(policy, Some(ring.with_coding(coding)));
        Ok(())
    }

    /// Ask others before these devices of a policy, and before no others.
    #[pyo3(signature = (policy, numbers, /))]
    fn avoid(&self, policy: u16, numbers: Vec<u32>) {
        self.0.avoid(policy, &numbers);
    }

    /// Policies and numbers of devices of coded ones that could not be reached since the last call.
    fn unreached(&self) -> Vec<(u16, u32)> {
        self.0.unreached()
    }

    /// Set where container databases are, so that rows are delivered natively.
    #[pyo3(signature = (part_power, rows, devices, /))]
    fn route_containers(
        &self,
        part_power: u32,
        rows: Vec<Bytes>,
        devices: Vec<Option<(PyRef<'_, TransportPeer>, String)>>,
    ) -> PyResult<()> {
        self.0.route_containers(Some(ring(part_power, &rows, devices, &[])?));
        Ok(())
    }

    /// Forget where container databases are.
    fn unroute_containers(&self) {
        self.0.route_containers(None);
    }

    /// Numbers of container servers that have failed since the last call.
    fn silent_containers(&self) -> Vec<u16> {
        self.0.silent_containers()
    }

    /// The newest timestamp that was given to a write.
    fn newest(&self) -> u64 {
        self.0.newest()
    }

    /// What has become of rows so far.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rows = self.0.rows();
        let dict = PyDict::new(py);
        dict.set_item("delivering", rows.delivering)?;
        dict.set_item("not_durable", rows.not_durable)?;
        dict.set_item("acknowledging", rows.acknowledging)?;
        dict.set_item("messages", rows.messages)?;
        dict.set_item("sent", rows.sent)?;
        dict.set_item("taken", rows.taken)?;
        dict.set_item("refused", rows.refused)?;
        dict.set_item("left", rows.others)?;
        dict.set_item("left_pending", rows.left_pending)?;
        dict.set_item("acknowledged", rows.acknowledged)?;
        dict.set_item("lost", rows.lost)?;
        dict.set_item("dropped", rows.dropped)?;
        Ok(dict)
    }

    /// Forget where a policy's objects are.
    #[pyo3(signature = (policy, /))]
    fn unroute(&self, policy: u16) {
        self.0.route(policy, None);
    }

    /// Open connections.
    fn open(&self) -> usize {
        self.0.open()
    }

    /// Requests that are being worked on, up to half a second ago.
    fn busy(&self) -> usize {
        self.0.busy()
    }

    /// Connections with TLS that Python serves, or will fetch.
    fn bridged(&self) -> usize {
        self.0.bridged()
    }

    /// Whether its thread runs.
    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Accept no more, and hand over idle connections.
    fn leave(&self) {
        self.0.leave();
    }

    /// Whether it has left.
    fn has_left(&self) -> bool {
        self.0.has_left()
    }
}
