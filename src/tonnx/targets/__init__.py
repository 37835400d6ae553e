"""What runtimes and converters take: one TOML file each, with its sources, and the profile that is read from it."""

from tonnx.targets.profile import Profile, names, read_profile

__all__ = ["Profile", "names", "read_profile"]
