//! How fast one core codes, beside ISA-L where it is installed: `bench/erasure/run.sh`.
//!
//! All contestants take turns in short rounds. What each makes is compared with what the first one made.
#![cfg_attr(feature = "isal", allow(unsafe_code, reason = "ISA-L is a library in C"))]

use std::hint::black_box;
use std::time::{Duration, Instant};

#[path = "../../../benches/measured.rs"]
mod measured;

use swiftlet_erasure::{Decoder, Encoder, Kernel, Scheme};

const CELL_BYTES: usize = 64 << 10;
const ROUNDS: usize = 60;
/// A contestant that has taken so long is left out of further rounds.
const ENOUGH: Duration = Duration::from_millis(1500);
/// Data bytes that are coded in a round, at least.
const ROUND_BYTES: usize = 24 << 20;

/// Reads some cells of a stripe, and writes others.
type Contestant<'a> = (String, Box<dyn FnMut(&[&[u8]], &mut [&mut [u8]]) + 'a>);

/// Stripes of known bytes with their parity.
struct Stripes {
    scheme: Scheme,
    cells: Vec<Vec<u8>>,
}

impl Stripes {
    fn new(scheme: Scheme, count: usize) -> Self {
        let mut state = 1_u64;
        let mut cells: Vec<Vec<u8>> = Vec::new();
        for _ in 0..count {
            let start = cells.len();
            for index in 0..scheme.cells() {
                let mut cell = vec![0; CELL_BYTES];
                for word in cell.chunks_exact_mut(8).filter(|_| index < scheme.data()) {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    word.copy_from_slice(&state.to_be_bytes());
                }
                cells.push(cell);
            }
            let (data, parity) = cells[start..].split_at_mut(scheme.data());
            let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
            Encoder::new(scheme).encode(&slices(data), &mut outputs).expect("a stripe");
        }
        Self { scheme, cells }
    }

    /// Let each contestant make the cells `made` of all stripes from the cells `given`, and print how fast it was.
    fn compare(&self, what: &str, given: &[usize], made: &[usize], mut contestants: Vec<Contestant<'_>>) {
        let stripes: Vec<&[Vec<u8>]> = self.cells.chunks(self.scheme.cells()).collect();
        let inputs: Vec<Vec<&[u8]>> =
            stripes.iter().map(|stripe| given.iter().map(|&index| &stripe[index][..]).collect()).collect();
        let mut memory = vec![vec![0; CELL_BYTES]; made.len() * stripes.len()];
        let bytes = stripes.len() * self.scheme.data() * CELL_BYTES;
        let times = ROUND_BYTES.div_ceil(bytes);
        let mut rates = vec![Vec::new(); contestants.len()];
        let mut taken = vec![Duration::ZERO; contestants.len()];
        for _ in 0..measured::rounds(ROUNDS) {
            for (((_, code), rates), taken) in contestants.iter_mut().zip(&mut rates).zip(&mut taken) {
                if *taken > ENOUGH {
                    continue;
                }
                memory.iter_mut().for_each(|cell| cell.fill(0));
                let start = Instant::now();
                for _ in 0..times {
                    for (input, output) in inputs.iter().zip(memory.chunks_mut(made.len())) {
                        code(input, &mut output.iter_mut().map(|cell| &mut cell[..]).collect::<Vec<_>>());
                    }
                }
                let elapsed = start.elapsed();
                rates.push((times * bytes) as f64 / elapsed.as_secs_f64() / 1e9);
                *taken += elapsed;
                for (stripe, output) in stripes.iter().zip(memory.chunks(made.len())) {
                    assert!(output.iter().zip(made).all(|(cell, &index)| *cell == stripe[index]), "wrong bytes");
                }
            }
        }
        let count = stripes.len();
        for ((name, _), rates) in contestants.iter().zip(rates) {
            let scheme = format!("{}+{}", self.scheme.data(), self.scheme.parity());
            let stripes = if count == 1 { "a stripe".to_owned() } else { format!("{count} stripes") };
            measured::tell(&format!("{scheme}, {what}, {stripes}, {name}"), "GB/s", &rates);
        }
    }

    fn encode(&self) {
        let scheme = self.scheme;
        let (data, parity): (Vec<_>, Vec<_>) = (0..scheme.cells()).partition(|&index| index < scheme.data());
        let mut contestants: Vec<Contestant<'_>> = Vec::new();
        for kernel in Kernel::available() {
            let encoder = Encoder::with_kernel(scheme, kernel);
            contestants.push((
                kernel.name().to_owned(),
                Box::new(move |given, made| encoder.encode(given, made).expect("a stripe")),
            ));
        }
        let encoder = Encoder::new(scheme);
        contestants.push((
            format!("{} and xxh3 of all", Kernel::best().name()),
            Box::new(move |given, made| {
                black_box(encoder.encode_with_digests(given, made).expect("a stripe"));
            }),
        ));
        #[cfg(feature = "isal")]
        contestants.push(isal::contestant(scheme, &data, &parity));
        self.compare("encode", &data, &parity, contestants);
    }

    fn decode(&self, lost: usize) {
        let scheme = self.scheme;
        let (left, lost): (Vec<_>, Vec<_>) = (0..scheme.cells()).partition(|&index| index >= lost);
        let left = &left[..scheme.data()];
        let mut contestants: Vec<Contestant<'_>> = Vec::new();
        for kernel in Kernel::available() {
            let decoder = Decoder::with_kernel(scheme, left, &lost, kernel).expect("a plan");
            contestants.push((
                kernel.name().to_owned(),
                Box::new(move |given, made| decoder.restore(given, made).expect("a stripe")),
            ));
        }
        let decoder = Decoder::new(scheme, left, &lost).expect("a plan");
        contestants.push((
            format!("{} and xxh3 of all", Kernel::best().name()),
            Box::new(move |given, made| {
                black_box(decoder.restore_with_digests(given, made).expect("a stripe"));
            }),
        ));
        #[cfg(feature = "isal")]
        contestants.push(isal::contestant(scheme, left, &lost));
        self.compare(&format!("{} data cells lost", lost.len()), left, &lost, contestants);
    }
}

fn slices(cells: &[Vec<u8>]) -> Vec<&[u8]> {
    cells.iter().map(|cell| &cell[..]).collect()
}

/// ISA-L, with the matrix that it has for this.
#[cfg(feature = "isal")]
mod isal {
    use super::{CELL_BYTES, Contestant, Scheme};

    #[link(name = "isal")]
    unsafe extern "C" {
        fn gf_gen_cauchy1_matrix(matrix: *mut u8, cells: i32, data: i32);
        fn gf_invert_matrix(matrix: *mut u8, inverse: *mut u8, size: i32) -> i32;
        fn gf_mul(a: u8, b: u8) -> u8;
        fn ec_init_tables(data: i32, rows: i32, coefficients: *mut u8, tables: *mut u8);
        fn ec_encode_data(
            length: i32,
            data: i32,
            rows: i32,
            tables: *mut u8,
            given: *const *const u8,
            made: *const *mut u8,
        );
    }

    /// Makes the cells `made` from the cells `given`, which are k; its tables are made beforehand.
    pub(super) fn contestant(scheme: Scheme, given: &[usize], made: &[usize]) -> Contestant<'static> {
        let (size, rows) = (scheme.data(), made.len());
        let mut matrix = vec![0; scheme.cells() * size];
        let mut inverse = vec![0; size * size];
        let mut tables = vec![0; 32 * size * rows];
        // SAFETY: the memory has the sizes that the library's manual asks for.
        unsafe {
            gf_gen_cauchy1_matrix(matrix.as_mut_ptr(), scheme.cells() as i32, size as i32);
            let row = |index: usize| &matrix[index * size..][..size];
            let mut of_given = given.iter().flat_map(|&index| row(index).to_vec()).collect::<Vec<u8>>();
            assert_eq!(gf_invert_matrix(of_given.as_mut_ptr(), inverse.as_mut_ptr(), size as i32), 0);
            let mut coefficients: Vec<u8> = Vec::new();
            for &index in made {
                for column in 0..size {
                    let terms = row(index).iter().zip(inverse.chunks(size));
                    coefficients.push(terms.fold(0, |sum, (factor, other)| sum ^ gf_mul(*factor, other[column])));
                }
            }
            ec_init_tables(size as i32, rows as i32, coefficients.as_mut_ptr(), tables.as_mut_ptr());
        }
        let code = move |given: &[&[u8]], made: &mut [&mut [u8]]| {
            let mut sources = [std::ptr::null(); swiftlet_erasure::MAX_DATA];
            let mut outputs = [std::ptr::null_mut(); swiftlet_erasure::MAX_PARITY];
            sources.iter_mut().zip(given).for_each(|(to, cell)| *to = cell.as_ptr());
            outputs.iter_mut().zip(made).for_each(|(to, cell)| *to = cell.as_mut_ptr());
            // SAFETY: there are as many cells as the tables are for, each of `CELL_BYTES`.
            unsafe {
                ec_encode_data(
                    CELL_BYTES as i32,
                    size as i32,
                    rows as i32,
                    tables.as_mut_ptr(),
                    sources.as_ptr(),
                    outputs.as_ptr(),
                );
            }
        };
        ("ISA-L".to_owned(), Box::new(code))
    }
}

fn main() {
    let few = |data, parity| Stripes::new(Scheme::new(data, parity).expect("a scheme"), 1);
    // A stripe that the caches hold, as one that has just come in; then more than they hold.
    let stripe = few(6, 3);
    stripe.encode();
    (1..=3).for_each(|lost| stripe.decode(lost));
    let many = Stripes::new(stripe.scheme, 400);
    many.encode();
    many.decode(3);
    for (data, parity) in [(4, 2), (8, 3), (10, 4)] {
        let stripe = few(data, parity);
        stripe.encode();
        stripe.decode(parity);
    }
}
