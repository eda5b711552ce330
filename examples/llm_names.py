"""Names of new classes from a language model behind an OpenAI-compatible endpoint (vLLM, llama.cpp, Ollama, OpenAI, …).

    export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=llama3.2
    rpim discover questions.csv -o run --namer llm_names:name

in the folder of this file. The texts of the new classes are sent to that endpoint, so choose one that may see them.
"""

import json
import os
import urllib.request

PROMPT = """These texts belong to one category. Its keywords: {keywords}.

{examples}

Answer with a name for the category, two to four words and nothing else."""


def name(examples: list[str], keywords: list[str]) -> str:
    """The name of a class, given its most typical texts and its keywords."""
    texts = "\n".join(f"- {text[:300]}" for text in examples[:10])
    message = PROMPT.format(keywords=", ".join(keywords), examples=texts)
    question = {
        "model": os.environ["OPENAI_MODEL"],
        "messages": [{"role": "user", "content": message}],
        "temperature": 0,
    }
    base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/")
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
    }
    request = urllib.request.Request(f"{base}/chat/completions", json.dumps(question).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    return said.strip().strip("\"'.").lower()
