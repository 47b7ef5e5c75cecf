//! Inverting a small matrix over GF(2^8), which is done once per pattern of lost cells.

use crate::field::{inverse, multiply};
use crate::scheme::{MAX_DATA, Row};

/// A square matrix, in its first rows and columns.
pub(crate) type Matrix = [Row; MAX_DATA];

/// The inverse of the first `size` rows and columns; `None` if they have none. By Gauss and Jordan.
pub(crate) fn invert(mut matrix: Matrix, size: usize) -> Option<Matrix> {
    let mut result: Matrix = [[0; MAX_DATA]; MAX_DATA];
    for (at, row) in result.iter_mut().enumerate() {
        row[at] = 1;
    }
    for column in 0..size {
        let pivot = (column..size).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        result.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        for at in 0..size {
            matrix[column][at] = multiply(scale, matrix[column][at]);
            result[column][at] = multiply(scale, result[column][at]);
        }
        let (source, made) = (matrix[column], result[column]);
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row][column];
            for at in 0..size {
                matrix[row][at] ^= multiply(factor, source[at]);
                result[row][at] ^= multiply(factor, made[at]);
            }
        }
    }
    Some(result)
}

/// `row` times the first `size` rows of `matrix`.
pub(crate) fn times(row: &Row, matrix: &Matrix, size: usize) -> Row {
    let mut result = [0; MAX_DATA];
    for (factor, other) in row.iter().zip(matrix).take(size) {
        for (sum, value) in result.iter_mut().zip(other).take(size) {
            *sum ^= multiply(*factor, *value);
        }
    }
    result
}
