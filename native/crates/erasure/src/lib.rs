//! Erasure coding: k data cells get m parity cells, and any k of the k+m give back all the others.
//!
//! An object is cut into *stripes* of k data cells; cell i of each stripe goes to fragment i, and each fragment to a
//! device of its own. [`Geometry`] says where each byte of an object lies, [`Encoder`] makes the parity cells of a
//! stripe, and [`Decoder`] restores cells from others. Nothing here does I/O, and nothing allocates memory per stripe.
//!
//! The code is systematic Reed-Solomon over GF(2^8) (polynomial 0x11d) with a Cauchy matrix: the coefficient of data
//! cell j in parity cell i is the inverse of (k + i) xor j. Every square submatrix of a Cauchy matrix is invertible, so
//! every pattern of at most m lost cells can be restored. ISA-L (`gf_gen_cauchy1_matrix`) and liberasurecode
//! (`isa_l_rs_cauchy`) have the same matrix and make the same bytes.
//!
//! Fault model: cells may be missing, and the caller says which. A cell with wrong bytes is not noticed here: it makes
//! wrong bytes of what is restored from it. Therefore each cell is stored with its xxh3, which [`Encoder`] computes, and
//! a caller compares the digests of all cells that it gives to a [`Decoder`] before it uses what comes out. Cells of
//! another generation of the object have right digests and restore nonsense all the same: which cells belong together
//! is the caller's to know.

mod decoder;
mod encoder;
mod field;
mod geometry;
mod kernel;
mod matrix;
mod product;
mod scheme;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use geometry::{Cell, Geometry, Piece, Stripe};
pub use kernel::Kernel;
pub use product::Digests;
pub use scheme::{Error, MAX_CELL_BYTES, MAX_CELLS, MAX_DATA, MAX_PARITY, MIN_DATA, Scheme};

#[cfg(test)]
mod tests;
