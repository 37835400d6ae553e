"""A package in use: a folder with ONNX files, a tokenizer and settings, as `tonnx export FOLDER` writes it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument, InvalidModel, needed
from tonnx.proof.session import Session, numpy_dtype
from tonnx.run.before import prepare
from tonnx.run.decoding import FEATURES, Asked, Decoder, Prompts, decode, padded, token_steps
from tonnx.run.features import features_of, longest, read_wav
from tonnx.run.pictures import open_picture
from tonnx.run.recipe import read_recipe
from tonnx.run.rules import Rules

MANIFEST = "tonnx_package.json"
"""What is in a package: the task, the files, and which output is which input of the next step."""

GENERATION, TRANSLATION, SPEECH, CAPTIONS = (
    "text-generation", "text2text-generation", "automatic-speech-recognition", "image-to-text",
)  # fmt: skip
ZERO_SHOT, PER_IMAGE = "zero-shot-image-classification", "logits_per_image"
"""A task with labels of the user's, and how well each text fits each picture."""
STATES, STATES_MASK = "encoder_hidden_states", "encoder_attention_mask"
"""What a decoder that reads an encoder's results calls them."""

Texts = str | Sequence[str] | Sequence[Sequence[int]] | np.ndarray


@dataclass(frozen=True)
class Generation:
    """What was generated for one prompt."""

    tokens: list[int]
    """Without those of the prompt."""
    text: str | None
    """None: the package has no tokenizer."""

    def __str__(self) -> str:
        return self.text if self.text is not None else " ".join(map(str, self.tokens))


class Package:
    """A loaded package; `tonnx.load` gives it for a folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        *,
        spin: bool = True,
    ) -> None:
        self.folder = Path(folder)
        self._loaded_by = providers, threads
        missing = f"{self.folder} is no package: it has no {MANIFEST}"
        self.manifest = read_json(self.folder / MANIFEST, missing, "tonnx export FOLDER -o PACKAGE makes one")
        self.task = str(self.manifest.get("task"))
        self.settings: dict[str, Any] = {}
        if (self.folder / "generation_config.json").is_file():
            self.settings = read_json(self.folder / "generation_config.json")
        names = [str(self.manifest[part]) for part in ("encoder", "vision", "embedding") if part in self.manifest]
        names.append(str(self.manifest.get("file")))
        for name in names:
            if not (self.folder / name).is_file():
                raise InvalidModel(f"{self.folder} lacks its ONNX file", where=str(self.folder / name))
        sessions = [Session(self.folder / name, providers, threads, spin=spin) for name in names]
        self._session = sessions[0]
        self.decoder = Decoder(sessions[-1], self.manifest, sessions[1] if "embedding" in self.manifest else None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Package, (os.path.abspath(self.folder), *self._loaded_by)

    def __repr__(self) -> str:
        return f"<tonnx package: {self.task}, {self.folder}>"

    @property
    def continues(self) -> bool:
        """Whether what is generated goes on with the prompt; else an encoder reads that."""
        return "encoder" not in self.manifest

    @property
    def sees(self) -> bool:
        """Whether texts have pictures, among their tokens or before them."""
        return "vision" in self.manifest

    def generate(self, prompts: Any, images: Any = None, **options: Any) -> list[Generation]:
        """Continue prompts, or rewrite them: texts, or lists of token ids. Pictures, where the package describes those.

        Greedy unless sampling or beams are asked for. What generation_config.json says of tokens that may not come, or
        must, holds (`tonnx.run.rules`).

        Args:
            prompts: one or several.
            images: for a model that reads pictures in a text, one for each prompt: paths, Pillow's, or the arrays that
                the network takes. A prompt has it where the model's token for pictures is, else in front.
            options: ``max_new_tokens`` (64): at most so many for each prompt; fewer where an end token comes.
                ``do_sample``: draw tokens by their probabilities, at this ``temperature``, of the ``top_k`` likeliest
                (0: all), and of the likeliest that together have the probability ``top_p``; ``seed`` repeats the draws.
                ``num_beams``: keep so many candidates of the highest total probability, ranked by their log
                probability over length to the power of ``length_penalty``.
        """
        self._check_task("generate", GENERATION, TRANSLATION, CAPTIONS)
        return self.generations(self._prompts(prompts, images), options)

    def generations(self, prompts: Prompts, options: Mapping[str, Any]) -> list[Generation]:
        """What comes after prompts, by the options of `generate`."""
        results = decode(self.decoder, prompts, _asked(options))
        return [Generation(tokens, self.text(tokens) if self.has_tokenizer else None) for tokens in results]

    def stream(self, prompt: str, images: Any = None, **options: Any) -> Iterator[str]:
        """The text after one prompt, piece by piece as it comes; options as of `generate`, without beams."""
        self._check_task("stream", GENERATION, TRANSLATION, CAPTIONS)
        asked = _asked(options)
        if asked.num_beams > 1:
            raise InvalidArgument("beams are known at the end only", hint="generate gives them")
        tokens: list[int] = []
        shown = ""
        for step in token_steps(self.decoder, self._prompts(prompt, images), asked):
            tokens += [token for token in step if token is not None]
            text = self.text(tokens)
            if not text.endswith("\ufffd"):  # else a letter is not complete
                yield text.removeprefix(shown)
                shown = text
        yield self.text(tokens).removeprefix(shown)

    def _prompts(self, prompts: Any, images: Any = None) -> Prompts:
        """What the decoder is given: the prompts themselves, or what the encoder makes of them."""
        if images is not None:
            return self._seeing_prompts(prompts, images)
        if "ahead" in self.manifest:
            raise InvalidArgument(f"{self.folder} takes no text without a picture", hint="give images=[…]")
        if self.continues:
            return self.prompts(self.token_ids(prompts))
        if self.task == TRANSLATION:
            ids, mask = padded(self.token_ids(prompts), in_front=False)
            context = self.context({"input_ids": ids, "attention_mask": mask})
        else:
            context = self.context({self._input: self._arrays(prompts)})
        return self.prompts([[int(self.manifest["start"])]] * len(context[STATES]), context)

    def _seeing_prompts(self, prompts: Any, images: Any) -> Prompts:
        """Prompts with as many tokens for their picture as it has rows, and those rows."""
        if not self.sees:
            raise InvalidArgument(f"{self.folder} does not read pictures in a text; it is for {self.task}")
        rows = self.token_ids(prompts)
        images = [images] if isinstance(images, (str, os.PathLike)) or not isinstance(images, Sequence) else images
        if len(images) != len(rows):
            raise InvalidArgument(f"there are {len(images)} pictures for {len(rows)} prompts", hint="give one for each")
        if "ahead" in self.manifest:
            context = self.read_ahead(images)
        else:
            context = {FEATURES: np.stack([self.features(image) for image in images])}
        return self.prompts([self._with_places(row) for row in rows], context)

    def _with_places(self, row: list[int]) -> list[int]:
        """A prompt with as many tokens for its picture as that has rows."""
        if (prompt := self.manifest.get("prompt")) is not None and prompt:
            row = [int(prompt["first"]), *row[1 : max(len(row) - int(prompt["dropped"]), 1)]]
        token, count = self.manifest["image_token"], int(self.manifest["image_rows"])
        if row.count(token) not in (0, 1, count):
            raise InvalidArgument(f"a prompt has {row.count(token)} tokens for pictures; it may have one picture")
        place = row.index(token) if token in row else 0
        others = [each for each in row if each != token]
        return [*others[:place], *[token] * count, *others[place:]]

    def features(self, image: Any) -> np.ndarray:
        """What the vision encoder makes of one picture: a row for each of its tokens."""
        return np.concatenate([*self._seen(image).values()], axis=-1)

    def read_ahead(self, images: Sequence[Any]) -> dict[str, np.ndarray]:
        """What pictures leave in the decoder before any text, by the names of its inputs."""
        each = [self._seen(image) for image in images]
        return {name: np.concatenate([left[name] for left in each]) for name in each[0]}

    def _seen(self, image: Any) -> dict[str, np.ndarray]:
        """What the vision encoder gives for one picture."""
        pixels = image if isinstance(image, np.ndarray) else self._arrays([image])
        wanted = self._session.shapes[self._input]
        if list(pixels.shape) != list(wanted):
            raise InvalidArgument(f"the network takes a picture as an array of {wanted}, not {list(pixels.shape)}")
        return self.run({self._input: pixels})

    def context(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the encoder makes of its inputs, by the names of the decoder's."""
        taken = {name: array for name, array in arrays.items() if name in self._session.inputs}
        context = {STATES: self.run(taken)["last_hidden_state"]}
        if STATES_MASK in self.decoder.inputs:
            context[STATES_MASK] = arrays["attention_mask"]
        return context

    def prompts(self, rows: Sequence[Sequence[int]], context: Mapping[str, np.ndarray] | None = None) -> Prompts:
        """Tokens for the decoder, with what the package's settings say of those to come."""
        return Prompts(rows, self._ends(), Rules.of(self.settings), context or {})

    def encode(self, prompts: Texts) -> np.ndarray:
        """One vector for each text: the mean over its tokens, or the first one's where the checkpoint says so."""
        self._check_task("encode", "feature-extraction")
        outputs, mask = self.outputs(self.token_ids(prompts))
        hidden = next(iter(outputs.values()))
        pooling = self.folder / "1_Pooling" / "config.json"
        if pooling.is_file() and read_json(pooling).get("pooling_mode_cls_token"):
            return np.asarray(hidden[:, 0])
        weights = mask[:, :, None].astype(hidden.dtype)
        return np.asarray((hidden * weights).sum(axis=1) / weights.sum(axis=1))

    def classify(
        self, items: Any, labels: Sequence[str] | None = None, template: str = "This is a photo of {}."
    ) -> list[dict[str, float]]:
        """The labels of each text, picture or sound with their probabilities, the likeliest first.

        Pictures are paths or Pillow's; also the array that the network takes. Sounds are arrays, or paths of WAV files.
        ``labels`` are for models that say how well texts fit pictures (CLIP); ``template`` makes a text of each.
        """
        kinds = ("text-classification", "image-classification", "audio-classification")
        self._check_task("classify", *kinds, ZERO_SHOT)
        if (labels is None) is (self.task == ZERO_SHOT):
            lacks = "needs labels to choose from" if labels is None else "has labels of its own"
            raise InvalidArgument(f"{self.folder} {lacks}")
        if labels is not None:
            rows = self.token_ids([template.format(label) for label in labels])
            scores, names = self.label_scores({self._input: self._arrays(items)}, rows), list(labels)
        else:
            if self.task == kinds[0]:
                scores = self.outputs(self.token_ids(items))[0]["logits"]
            else:
                scores = self.run({self._input: self._arrays(items)})["logits"]
            known = read_json(self.folder / "config.json").get("id2label") or {}
            names = [str(known.get(str(i), f"LABEL_{i}")) for i in range(scores.shape[-1])]
        results = []
        for row in scores.astype(np.float64):
            if self.manifest.get("scores") == "sigmoid":
                chances = 1 / (1 + np.exp(-row))
            else:
                chances = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
            results.append({names[i]: float(chances[i]) for i in np.argsort(-chances, kind="stable")})
        return results

    def label_ids(self, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Texts for labels as the model takes them, and which places are tokens."""
        filled = self.manifest.get("filled") or {}
        most = filled.get("length") or max(map(len, rows))
        cut = [[*row[: most - 1], row[-1]] if len(row) > most else row for row in rows]
        return padded(cut, in_front=False, **filled)

    def label_scores(self, pictures: Mapping[str, np.ndarray], rows: Sequence[Sequence[int]]) -> np.ndarray:
        """How well each text fits each picture, as the model says it."""
        ids, mask = self.label_ids(rows)
        texts = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        if "scores" not in self.manifest:
            raise InvalidArgument(f"{self.folder} takes one text for each picture", hint="run takes its arrays")
        given = {name: array for name, array in {**pictures, **texts}.items() if name in self._session.inputs}
        return self.run(given)[PER_IMAGE]

    def transcribe(self, sound: Any, language: str | None = None, **options: Any) -> str:
        """The words of one sound, an array of samples or the path of a WAV file.

        Models with CTC give the likeliest letter at each step. Those with a decoder generate; ``language`` (such as
        ``"en"``) is for models of several, which else tell it themselves, and ``options`` are those of `generate`.
        Longer sounds than such a model takes are cut.
        """
        self._check_task("transcribe", SPEECH)
        if self.continues:
            return self._letters(self._sound(sound))
        samples = self._samples(sound)
        most = longest(self._preparation) or max(len(samples), 1)
        pieces = [samples[first : first + most] for first in range(0, len(samples), most)]
        return " ".join(self._words(piece, language, options) for piece in pieces).strip()

    def _words(self, samples: np.ndarray, language: str | None, options: Mapping[str, Any]) -> str:
        context = self.context({self._input: self._prepared(samples)[None]})
        start = self._speech_start(context, language)
        asked = {"max_new_tokens": 224, **options}
        return str(self.generations(self.prompts([start], context), asked)[0]).strip()

    def _speech_start(self, context: Mapping[str, np.ndarray], language: str | None) -> list[int]:
        """The first tokens: where the settings know languages and tasks, also those, and that no times are wanted."""
        start = [int(self.manifest["start"])]
        languages: dict[str, int] = self.settings.get("lang_to_id") or {}
        if language is not None and f"<|{language}|>" not in languages:
            names = ", ".join(name.strip("<|>") for name in languages) or "none"
            raise InvalidArgument(f"{self.folder} has no language {language!r}", why=f"it has {names}")
        if language is not None:
            start.append(languages[f"<|{language}|>"])
        elif languages:
            scores, _ = self.decoder.step(np.array([start]), np.ones((1, 1), np.int64), self.decoder.start(1, context))
            start.append(max(languages.values(), key=lambda token: float(scores[0, token])))
        if (task := (self.settings.get("task_to_id") or {}).get("transcribe")) is not None:
            start.append(int(task))
        if (token := self.settings.get("no_timestamps_token_id")) is not None:
            start.append(int(token))
        return start

    def _letters(self, samples: np.ndarray) -> str:
        logits = self.run({self._input: samples[None]})["logits"][0]
        letters = logits.argmax(-1)
        blank = read_json(self.folder / "config.json").get("pad_token_id", 0)
        changed = letters[np.flatnonzero(np.diff(letters, prepend=-1))]
        names = {number: letter for letter, number in read_json(self.folder / "vocab.json").items()}
        text = "".join(str(names.get(int(number), "")) for number in changed if number != blank)
        return text.replace("|", " ").strip()

    def run(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the file gives for arrays by the names of its inputs."""
        kinds = {name: numpy_dtype(element) for name, element in self._session.inputs.items()}
        halves = {name for name in arrays if kinds.get(name) == np.float16}  # of a package with --to fp16
        return self._session.run({n: array.astype(np.float16) if n in halves else array for n, array in arrays.items()})

    @property
    def _input(self) -> str:
        return str(self.manifest["input"])

    def _arrays(self, items: Any) -> np.ndarray:
        """Pictures or sounds as the one array that the network takes."""
        if isinstance(items, np.ndarray):
            return items
        items = [items] if isinstance(items, (str, os.PathLike)) else items
        if self._input != "pixel_values" and not self.sees:
            return np.stack([self._sound(item) for item in items])
        steps = self.manifest.get("before")
        if steps is None:
            raise InvalidArgument(
                f"{self.folder} does not say how pictures are prepared", hint="give the array that the network takes"
            )
        recipe = read_recipe({"before": steps})
        pictures = (open_picture(item) if isinstance(item, (str, os.PathLike)) else item for item in items)
        return np.stack([prepare(picture, recipe).pixels() for picture in pictures])

    def _sound(self, sound: Any) -> np.ndarray:
        return self._prepared(self._samples(sound))

    def _samples(self, sound: Any) -> np.ndarray:
        rate = int(self._preparation.get("sampling_rate", 16_000))
        return read_wav(sound, rate) if isinstance(sound, (str, os.PathLike)) else np.asarray(sound, np.float32)

    def _prepared(self, samples: np.ndarray) -> np.ndarray:
        return features_of(samples, self._preparation, len(self._session.shapes[self._input]) > 2)

    @cached_property
    def _preparation(self) -> dict[str, Any]:
        return preparation_of(self.folder)

    def outputs(self, rows: Sequence[Sequence[int]]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """What the file gives for texts as token ids, and which places are tokens: padding is at the end."""
        ids, mask = padded(rows, in_front=False)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return self._session.run({name: array for name, array in known.items() if name in self._session.inputs}), mask

    def _check_task(self, name: str, *tasks: str) -> None:
        if self.task not in tasks:
            raise InvalidArgument(f"{name} is for {' and '.join(tasks)}; {self.folder} is for {self.task}")

    def _ends(self) -> list[int]:
        ends = self.settings.get("eos_token_id")
        return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)

    @property
    def has_tokenizer(self) -> bool:
        return (self.folder / "tokenizer.json").is_file()

    def token_ids(self, prompts: Texts) -> list[list[int]]:
        """Prompts as token ids, with the special tokens that the tokenizer puts in front."""
        given = [prompts] if isinstance(prompts, str) else list(prompts)
        if not given:
            raise InvalidArgument("there is no prompt")
        if isinstance(given[0], str):
            return [list(encoding.ids) for encoding in self._tokenizer().encode_batch(given)]
        rows = [[int(token) for token in row] for row in given]
        if not all(rows):
            raise InvalidArgument("a prompt has no tokens")
        return rows

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer().decode(list(tokens), skip_special_tokens=True))

    def _tokenizer(self) -> Any:
        if not self.has_tokenizer:
            raise InvalidModel(f"{self.folder} has no tokenizer.json", hint="give token ids")
        tokenizers = needed("tokenizers", "texts need a tokenizer", "pip install tokenizers")
        if "_loaded_tokenizer" not in vars(self):
            self._loaded_tokenizer = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        return self._loaded_tokenizer


def _asked(options: Mapping[str, Any]) -> Asked:
    unknown = sorted(options.keys() - {each.name for each in fields(Asked)})
    if unknown:
        names = ", ".join(each.name for each in fields(Asked))
        raise InvalidArgument(f"generate has no option {unknown[0]!r}", why=f"it has {names}")
    return Asked(**options)


def preparation_of(folder: Path) -> dict[str, Any]:
    """How a checkpoint prepares pictures or sounds; empty where it does not say so."""
    if (folder / "preprocessor_config.json").is_file():
        return read_json(folder / "preprocessor_config.json")
    if (folder / "processor_config.json").is_file():
        parts = read_json(folder / "processor_config.json")
        return dict(parts.get("feature_extractor") or parts.get("image_processor") or {})
    return {}


def read_json(file: Path, missing: str = "", hint: str | None = None) -> dict[str, Any]:
    """A file with a JSON object; ``missing`` and ``hint`` are said where there is no file."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidModel(missing or f"there is no file {file}", hint=hint) from None
    except (ValueError, OSError) as error:
        raise InvalidModel(f"{file} cannot be read", why=str(error)) from error
    if not isinstance(content, dict):
        raise InvalidModel(f"{file} is no JSON object")
    return content
