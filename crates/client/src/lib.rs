//! SMB client and remote mapped regions.
