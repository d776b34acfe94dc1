//! Negotiate flags, common to all three NTLM messages.
//!
//! Spec: MS-NLMP §2.2.2.5.

use bitflags::bitflags;

bitflags! {
    /// What the two sides agree on; unknown bits survive.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct NtlmFlags: u32 {
        /// Strings are UTF-16.
        const UNICODE = 0x0000_0001;
        /// The client wants the target's name.
        const REQUEST_TARGET = 0x0000_0004;
        /// Message integrity.
        const SIGN = 0x0000_0010;
        /// Message confidentiality.
        const SEAL = 0x0000_0020;
        /// NTLM authentication, as opposed to LM only.
        const NTLM = 0x0000_0200;
        /// The client claims no identity.
        const ANONYMOUS = 0x0000_0800;
        /// A signature block, even if a dummy.
        const ALWAYS_SIGN = 0x0000_8000;
        /// The target name is a server's.
        const TARGET_TYPE_SERVER = 0x0002_0000;
        /// Session keys as NTLMv2 makes them.
        const EXTENDED_SESSIONSECURITY = 0x0008_0000;
        /// The challenge carries target info.
        const TARGET_INFO = 0x0080_0000;
        /// A version field, for debugging only.
        const VERSION = 0x0200_0000;
        /// 128-bit keys.
        const KEY_128 = 0x2000_0000;
        /// The client chooses the session key.
        const KEY_EXCH = 0x4000_0000;
        /// 56-bit keys.
        const KEY_56 = 0x8000_0000;
        const _ = !0;
    }
}

impl NtlmFlags {
    /// What we grant when the client asks for it.
    pub(super) const GRANTABLE: Self = Self::UNICODE
        .union(Self::REQUEST_TARGET)
        .union(Self::SIGN)
        .union(Self::SEAL)
        .union(Self::ALWAYS_SIGN)
        .union(Self::EXTENDED_SESSIONSECURITY)
        .union(Self::VERSION)
        .union(Self::KEY_128)
        .union(Self::KEY_EXCH)
        .union(Self::KEY_56);

    /// What a client of ours offers.
    pub(super) const OFFERED: Self = Self::GRANTABLE.union(Self::NTLM).union(Self::TARGET_INFO);

    /// What every challenge of ours says.
    pub(super) const ALWAYS: Self =
        Self::NTLM.union(Self::TARGET_TYPE_SERVER).union(Self::TARGET_INFO);
}
