//! CRC-32 as linear algebra: what one byte at a distance adds to a checksum, and how to run it backwards.
//!
//! A CRC register is a polynomial over two elements modulo the generator, here
//! in reflected form (bit 31 is the coefficient of x^0). Feeding a zero byte
//! multiplies it by x^8. So the effect of a changed byte depends only on how many
//! bytes follow it, changes add up by XOR, and dividing by x^8 runs it backwards.

/// The generator of CRC-32 without its x^32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// 1 / x: the element that times x gives [`ONE`].
const INVERSE_OF_X: u32 = (ONE ^ POLYNOMIAL) << 1 | 1;

/// The register, started at zero, after one byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut register = byte;
        let mut bit = 0;
        while bit < 8 {
            register = times_x(register);
            bit += 1;
        }
        table[byte as usize] = register;
        byte += 1;
    }
    table
};

/// `DIVISORS[k]` is x^(-8 * 2^k): dividing by it takes 2^k zero bytes back.
const DIVISORS: [u32; 17] = {
    let mut divisors = [0; 17];
    let mut power = INVERSE_OF_X;
    let mut squarings = 0;
    while squarings < 3 {
        power = multiply(power, power);
        squarings += 1;
    }
    let mut k = 0;
    while k < divisors.len() {
        divisors[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    divisors
};

const fn times_x(register: u32) -> u32 {
    if register & 1 == 0 { register >> 1 } else { register >> 1 ^ POLYNOMIAL }
}

/// The product of two polynomials modulo the generator.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut term = ONE;
    while term != 0 {
        if a & term != 0 {
            product ^= b;
        }
        b = times_x(b);
        term >>= 1;
    }
    product
}

/// For every value of a byte with `following` bytes after it: what it changes in
/// the final register, compared with a zero byte in its place.
pub(crate) const fn effect_of_byte(following: usize) -> [u32; 256] {
    let mut effects = TABLE;
    let mut byte = 0;
    while byte < 256 {
        let mut i = 0;
        while i < following {
            effects[byte] = effects[byte] >> 8 ^ TABLE[(effects[byte] & 0xff) as usize];
            i += 1;
        }
        byte += 1;
    }
    effects
}

/// The register change that `bytes` zero bytes turn into `change`.
pub(crate) const fn before_bytes(change: u32, bytes: usize) -> u32 {
    let mut change = change;
    let mut k = 0;
    while k < DIVISORS.len() {
        if bytes >> k & 1 != 0 {
            change = multiply(change, DIVISORS[k]);
        }
        k += 1;
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        crc32fast::hash(bytes)
    }

    #[test]
    fn a_changed_byte_changes_the_checksum_by_its_effect() {
        let mut message = [0x5a; 40];
        let before = crc(&message);
        for at in 0..40 {
            message[at] ^= 0xc3;
            assert_eq!(crc(&message) ^ before, effect_of_byte(39 - at)[0xc3], "byte {at}");
            message[at] ^= 0xc3;
        }
    }

    #[test]
    fn zero_bytes_can_be_taken_back() {
        for (change, bytes) in [(1_u32, 0_usize), (1, 1), (0xdead_beef, 22), (0x8000_0001, 4140), (7, 65_575)]
        {
            let mut register = change;
            for _ in 0..bytes {
                register = register >> 8 ^ TABLE[(register & 0xff) as usize];
            }
            assert_eq!(before_bytes(register, bytes), change, "{bytes} bytes");
        }
    }
}
