"""A reference of the Python package, out of its sources: public names with their signatures and doc comments. Nothing is imported of it."""

import ast

# Modules whose public names are listed.
MODULES = ["__init__", "layout", "testing", "pytest_plugin", "ops", "experts", "torch/__init__"]
TITLES = {"__init__": "tilewright", "torch/__init__": "tilewright.torch"}


def parsed(path):
    """A file's syntax tree."""
    return ast.parse(path.read_text(), str(path))


def source(package, module):
    """The file of a module, or its stub's where it is native or made of a table."""
    for name in (f"{module}.pyi", f"{module}.py", f"{module}/__init__.py"):
        if (package / name).exists():
            return package / name
    raise FileNotFoundError(module)


def exported(tree):
    """The names of `__all__`, or all public ones that are defined."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [each.value for each in node.value.elts if isinstance(each, ast.Constant)]
    return [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")]


def definitions(package, module, tree):
    """The definitions of a module and those that it takes from its neighbours, by name: the file, and the definition."""
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            folder = package / module.rpartition("/")[0] if "/" in module else package
            inner = parsed(source(folder, node.module.replace(".", "/")))
            for name in node.names:
                for each in inner.body:
                    if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and each.name == name.name:
                        found[name.asname or name.name] = each
    return found


def signature(node):
    """A function's signature, without what Python passes itself."""
    arguments = node.args
    first = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][:1]
    text = ast.unparse(arguments)
    if first in (["self"], ["cls"]):
        text = text.partition(", ")[2] if ", " in text else ""
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{node.name}({text}){returned}"


def decorated(node, name):
    """True if a function has a decorator of this name."""
    return any(ast.unparse(each) == name for each in node.decorator_list)


def entry(name, node):
    """The entry of a name: its signature and doc comment, and those of a class's public members."""
    doc = ast.get_docstring(node) or ""
    if isinstance(node, ast.FunctionDef):
        return f"## `{name}`\n\n```python\n{signature(node)}\n```\n\n{doc}\n"
    parts = [f"## `{name}`\n\n{doc}\n"]
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and (not member.name.startswith("_") or member.name == "__init__") and not decorated(member, f"{member.name}.setter"):
            said = ast.get_docstring(member)
            if member.name == "__init__" and said is None:
                continue
            head = member.name if decorated(member, "property") else signature(member)
            parts.append(f"`{head}`\n:   {' '.join((said or '').split())}\n")
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and not member.target.id.startswith("_"):
            parts.append(f"`{member.target.id}: {ast.unparse(member.annotation)}`\n")
    return "\n".join(parts)


def pages(package):
    """The pages of the reference: names of files, and texts."""
    for module in MODULES:
        path = package / f"{module}.py"
        tree = parsed(path)
        title = TITLES.get(module, f"tilewright.{module}")
        stub = package / f"{module}.pyi"
        known = {**(definitions(package, module, parsed(stub)) if stub.exists() else {}), **definitions(package, module, tree)}
        names = exported(parsed(stub) if stub.exists() else tree)
        parts = [f"# {title}\n\n{ast.get_docstring(tree) or ''}\n"]
        parts += [entry(name, known[name]) for name in names if name in known]
        yield title, "\n".join(parts)
