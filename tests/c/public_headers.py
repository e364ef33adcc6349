"""The public headers of both languages, and which C function is whose counterpart.

A member function of a class has the function of the same name behind the class's prefix in C. The last
prefix, without its end, is the name of the class there."""
import re

PUBLIC = ("collectives/include/dlaunch", "runtime/include/dlaunch")
# Header, class, and the prefixes of its counterparts.
CLASSES = (
    ("communicator.hpp", "Communicator", ("dl_", "dl_comm_")),
    ("message.hpp", "Message", ("dl_message_",)),
    ("work.hpp", "Work", ("dl_work_",)),
    ("work.hpp", None, ("dl_work_",)),
    ("gradient_reducer.hpp", "GradientReducer", ("dl_reducer_",)),
    ("buffer.hpp", "SharedBuffer", ("dl_buffer_",)),
    ("store.hpp", "Store", ("dl_store_",)),
    ("store.hpp", None, ("dl_store_",)),
    ("store.hpp", "JobStore", ("dl_store_",)),
    ("world.hpp", "World", ("dl_world_",)),
    ("world.hpp", None, ("dl_",)),
    ("port.hpp", "Listener", ("dl_listener_",)),
    ("port.hpp", None, ("dl_",)),
    ("reduction.hpp", None, ("dl_",)),
    ("tree.hpp", "Tree", ("dl_tree_",)),
    ("notify.hpp", None, ("dl_",)),
)
# In C by another name, as what it gives is another thing.
NAMED = {
    "Communicator::timeout": "dl_comm_timeout_ms",
    "GradientReducer::no_sync": "dl_reducer_set_sync",
    "GradientReducer::buckets": "dl_reducer_bucket",
    "SharedBuffer::size_bytes": "dl_buffer_bytes",
    "World::info": "dl_world_get_info",
    "Tree::text": "dl_tree_json",
    "Tree::tensors": "dl_tree_tensor",
}
# Structs: header, C++, header, C, and what the C one has beside the other's fields. A duration's field ends in _ms
# there.
STRUCTS = (
    ("world.hpp", "WorldInfo", "world.h", "dl_world_info", {"struct_size", "reserved"}),
    ("world.hpp", "InitOptions", "world.h", "dl_init_options", {"struct_size"}),
    ("message.hpp", "Received", "messages.h", "dl_received", {"reserved"}),
    ("message.hpp", "Transfer", "messages.h", "dl_transfer", set()),
    ("gradient_reducer.hpp", "Parameter", "training.h", "dl_parameter", {"axes", "reserved"}),
)


def path_of(source, header):
    return next(source / folder / header for folder in PUBLIC if (source / folder / header).exists())


def code_of(path):
    text = re.sub(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', r"\1", path.read_text(), flags=re.DOTALL)
    return re.sub(r"^\s*#[^\n]*(\\\n[^\n]*)*", "", text, flags=re.MULTILINE)


def without_bodies(text):
    """What stands in no brace; a body ends its declaration, a default argument does not."""
    braces, parentheses, kept = 0, 0, []
    for c in text:
        braces -= c == "}"
        if braces == 0:
            parentheses += {"(": 1, ")": -1}.get(c, 0)
            kept.append(c if c != "}" else ";" if parentheses == 0 else "")
        braces += c == "{"
    return "".join(kept)


def functions_of(code, name):
    """The functions that a class declares, or, without a name, the namespace."""
    if name is None:
        body = without_bodies(re.search(r"namespace dlaunch \{(.*)\}", code, re.DOTALL)[1])
    else:
        begin = re.search(rf"class [^;{{]*\b{name}\b[^;{{]*\{{", code).end()
        depth, end = 1, begin
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        body = without_bodies(code[begin:end - 1].split("\n private:")[0])
        body = body.replace("public:", "")
    found = set()
    for declaration in body.split(";"):
        declaration = re.sub(r"\b(requires|noexcept|decltype)\b\s*\([^()]*(\([^()]*\))*[^()]*\)", "", declaration)
        declared = re.search(r"(\boperator\b|[~\w]+)\s*\(", declaration)
        if declared and "operator" not in declaration and declared[1] not in (name, f"~{name}", "using"):
            if not re.match(r"\s*(using|friend|struct|class|template\s*<class T>\s*requires)\b", declaration):
                found.add(declared[1])
    return found


def functions_in_c(source):
    headers = (path for folder in PUBLIC for path in (source / folder / "c").glob("*.h"))
    return {name for path in headers for name in re.findall(r"DL_API[^;(]*\b(dl_\w+)\s*\(", code_of(path))}


def counterparts(source):
    """Header, function in full, the names by which C may have it, and that by which it does; None: it does not."""
    c = functions_in_c(source)
    for header, name, prefixes in CLASSES:
        for function in sorted(functions_of(code_of(path_of(source, header)), name)):
            full = f"{name}::{function}" if name else function
            names = [NAMED[full]] if full in NAMED else [prefix + function for prefix in prefixes]
            yield header, full, names, next((each for each in names if each in c), None)
