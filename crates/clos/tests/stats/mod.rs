//! The tests of statistics: chi-square and the correction after Holm.

/// Whether two rows of counts may come from the same chances: the chance of a difference like theirs or a
/// larger one. Cells of which less than five are expected in a row are put together, for each block of
/// `block` cells and then for all blocks.
pub(crate) fn homogeneity(one: &[u64], other: &[u64], block: usize) -> f64 {
    let cells = pooled(one, other, block);
    let (first, second): (u64, u64) = cells.iter().fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    let all = real(first + second);
    let mut chi_square = 0.0;
    for (a, b) in &cells {
        let column = real(a + b);
        for (seen, row) in [(*a, first), (*b, second)] {
            let expected = column * real(row) / all;
            chi_square += (real(seen) - expected).powi(2) / expected;
        }
    }
    let freedom = cells.len().saturating_sub(1);
    if freedom == 0 { 1.0 } else { upper_gamma(real(freedom as u64) / 2.0, chi_square / 2.0) }
}

/// Cells with at least ten counts in both rows together.
fn pooled(one: &[u64], other: &[u64], block: usize) -> Vec<(u64, u64)> {
    let pairs: Vec<(u64, u64)> = one.iter().copied().zip(other.iter().copied()).collect();
    let (mut cells, mut left) = (Vec::new(), (0, 0));
    for block in pairs.chunks(block) {
        let is_large = |cell: &(u64, u64)| cell.0 + cell.1 >= 10;
        cells.extend(block.iter().filter(|cell| is_large(cell)));
        let small = block.iter().filter(|cell| !is_large(cell));
        let rest = small.fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
        if rest.0 + rest.1 >= 10 {
            cells.push(rest);
        } else {
            left = (left.0 + rest.0, left.1 + rest.1);
        }
    }
    if left.0 + left.1 > 0 {
        match cells.iter_mut().min_by_key(|cell| cell.0 + cell.1) {
            Some(cell) if left.0 + left.1 < 10 => *cell = (cell.0 + left.0, cell.1 + left.1),
            _ => cells.push(left),
        }
    }
    cells
}

/// Which hypotheses are rejected at this level, if many are tested at once (Holm 1979).
pub(crate) fn holm(chances: &[f64], level: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let is_small =
        |(rank, index): &(usize, &usize)| chances[**index] <= level / real((chances.len() - rank) as u64);
    order.iter().enumerate().take_while(is_small).map(|(_, index)| *index).collect()
}

/// The upper regularised incomplete gamma function: by its series below the bend, by its continued fraction
/// above.
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-15 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - sum * front;
    }
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut fraction = d;
    for step in 1..500 {
        let i = f64::from(step);
        let an = -i * (i - a);
        b += 2.0;
        d = 1.0 / nonzero(an * d + b, tiny);
        c = nonzero(b + an / c, tiny);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

fn nonzero(value: f64, tiny: f64) -> f64 {
    if value.abs() < tiny { tiny } else { value }
}

/// The logarithm of the gamma function, for whole numbers and halves.
fn ln_gamma(a: f64) -> f64 {
    let (mut x, mut sum) =
        if a.fract() == 0.0 { (1.0, 0.0) } else { (0.5, std::f64::consts::PI.sqrt().ln()) };
    while x < a {
        sum += f64::ln(x);
        x += 1.0;
    }
    sum
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn real(count: u64) -> f64 {
    count as f64
}

/// Values of the tables: the chance of 5 %, and of 1 %, by degrees of freedom.
#[test]
fn chi_square_is_that_of_the_tables() {
    for (freedom, at_5, at_1) in
        [(1.0, 3.841, 6.635), (2.0, 5.991, 9.210), (10.0, 18.307, 23.209), (30.0, 43.773, 50.892)]
    {
        for (value, chance) in [(at_5, 0.05), (at_1, 0.01)] {
            let computed = upper_gamma(freedom / 2.0, value / 2.0);
            assert!((computed - chance).abs() < 2e-5, "{freedom}, {value}: {computed}");
        }
    }
    assert!((upper_gamma(5.0, 0.1) - 1.0).abs() < 1e-6);
}

#[test]
fn holm_rejects_the_smallest_first() {
    assert_eq!(holm(&[0.5, 0.004, 0.9], 0.01), [0_usize; 0]);
    assert_eq!(holm(&[0.5, 0.003, 0.9], 0.01), [1]);
    assert_eq!(holm(&[0.004, 0.003, 0.9], 0.01), [1, 0]);
    assert_eq!(holm(&[0.01], 0.01), [0]);
}

#[test]
fn counts_that_differ_are_told_from_those_that_do_not() {
    assert!(homogeneity(&[500, 500], &[510, 490], 2) > 0.5);
    assert!(homogeneity(&[500, 500], &[400, 600], 2) < 1e-4);
    assert!((homogeneity(&[500, 0, 0], &[500, 0, 0], 3) - 1.0).abs() < 1e-9);
    assert!(homogeneity(&[500, 3, 0], &[500, 0, 3], 3) > 0.9, "too few to say anything");
    assert!(homogeneity(&[500, 12, 0], &[500, 0, 12], 3) < 1e-4);
}
