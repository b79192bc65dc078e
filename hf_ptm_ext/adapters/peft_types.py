"""Names of our methods in PEFT's `PeftType`, which is closed to methods from outside.

PEFT offers `register_peft_method`, but accepts only members of this enumeration; members are therefore added at run
time, once, and none that PEFT has itself.
"""

from peft.utils import PeftType


def add_peft_type(name: str) -> PeftType:
    """The member of `PeftType` with this name, added if PEFT has none.

    Args:
        name: in capitals.

    Returns:
        The member; its value is its name.

    Example:
        >>> add_peft_type("HOULSBY") is add_peft_type("HOULSBY") is PeftType("HOULSBY")
        True
    """
    if name in PeftType.__members__:
        return PeftType[name]
    member = str.__new__(PeftType, name)
    member._name_ = name
    member._value_ = name
    member._sort_order_ = len(PeftType.__members__)
    member.__objclass__ = PeftType
    PeftType._member_names_.append(name)
    PeftType._member_map_[name] = member
    PeftType._value2member_map_[name] = member
    if hasattr(PeftType, "_hashable_values_"):  # Python 3.13: what `in` looks through
        PeftType._hashable_values_.append(name)
    type.__setattr__(PeftType, name, member)
    return member


HOULSBY = add_peft_type("HOULSBY")
PFEIFFER = add_peft_type("PFEIFFER")

__all__ = ["HOULSBY", "PFEIFFER", "add_peft_type"]
