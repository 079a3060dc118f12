//! Which ports may be called.
//!
//! Sites and receivers stand on many ports, so by default all may be called but those of other protocols: a request whose
//! header or body is a line that such a server understands would make it act in our name, as a mail server does (the
//! Fetch Standard's [port blocking](https://fetch.spec.whatwg.org/#port-blocking)). Browsers refuse the same ones, so no
//! site that people can see stands there.

use std::ops::RangeInclusive;

/// The ports of other protocols: the table of "bad ports" in the Fetch Standard, ascending. 0 cannot be connected to
/// (RFC 6335 §6).
const OF_OTHER_PROTOCOLS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// Whether a port may be called: one in the operator's `list`, or, without a list, any that is not another protocol's.
pub(super) fn may_be_called(port: u16, list: Option<&[RangeInclusive<u16>]>) -> bool {
    match list {
        Some(list) => port != 0 && list.iter().any(|range| range.contains(&port)),
        None => OF_OTHER_PROTOCOLS.binary_search(&port).is_err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_only_other_protocols_ports_are_refused() {
        assert!(OF_OTHER_PROTOCOLS.is_sorted());
        for port in
            [80, 81, 443, 444, 591, 2368, 3000, 5000, 5678, 8000, 8080, 8443, 8888, 9000, 32_768, 65_535]
        {
            assert!(may_be_called(port, None), "{port}");
        }
        // Mail in and out, shells, names, chat, telephony, files, screens.
        for port in [0, 22, 23, 25, 53, 110, 143, 465, 587, 993, 995, 2049, 5060, 6000, 6667, 6697, 10080] {
            assert!(!may_be_called(port, None), "{port}");
        }
    }

    #[test]
    fn a_list_is_all_that_may_be_called_and_nothing_else() {
        let list = [443..=443, 8000..=8999, 25..=25, 0..=1];
        for (port, called) in [
            (443, true),
            (8000, true),
            (8999, true),
            // The operator's word holds also for another protocol's port.
            (25, true),
            (1, true),
            (0, false),
            (80, false),
            (7999, false),
            (9000, false),
        ] {
            assert_eq!(may_be_called(port, Some(&list)), called, "{port}");
        }
        assert!(!may_be_called(443, Some(&[])));
    }
}
