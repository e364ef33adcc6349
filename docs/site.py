"""What mkdocs does besides (mkdocs.yml): the pages in the root of the tree are pages of the site, too."""
import logging
import pathlib
import re

from mkdocs.structure.files import File

ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
LINK = re.compile(r"(\]\()([^)#:]*)([)#])")
ELSEWHERE = "decisions/"  # Their page has a table of them.
CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def on_files(files, config):
    root = pathlib.Path(config["config_file_path"]).parent
    for name in ROOT_PAGES:
        files.append(File(name, str(root), config["site_dir"], config["use_directory_urls"]))
    files.remove(files.get_file_from_path("site.py"))
    return files


def on_nav(nav, config, files):
    """A page that no reader comes to by the menu is a warning, which --strict takes for an error."""
    listed = {page.file.src_path for page in nav.pages}
    for file in files.documentation_pages():
        if file.src_path not in listed and not file.src_path.startswith(ELSEWHERE):
            logging.getLogger("mkdocs.hooks.site").warning("%s is not in the nav of mkdocs.yml", file.src_path)
    return nav


def on_page_markdown(markdown, page, config, files):
    """Links of the tree, as links of the site."""
    def moved(link):
        path = link.group(2)
        if page.file.src_path in ROOT_PAGES:
            path = path.removeprefix("docs/")
        elif path.startswith("../") and path[3:] in ROOT_PAGES:
            path = path[3:]
        if path == "decisions":
            path = "decisions/README.md"
        elif path == "examples":
            path = "examples/train.cpp"
        return link.group(1) + path + link.group(3)

    parts = CODE.split(markdown)
    return "".join(part if CODE.fullmatch(part) else LINK.sub(moved, part) for part in parts)
