"""The tree of the classes against CIFAR-100's 20 superclasses and CLINC150's 10 domains.

    python benchmarks/hierarchy.py --data FOLDER

FOLDER is that of benchmarks/protocol.py. A found class has the superclass of most of its rows. Two measures, in both of
which 1 is perfect: the dendrogram purity (for every two classes of one superclass, the share of that superclass in the
smallest group that holds both; the mean over these pairs), and the purity of a cut into as many groups as there are
superclasses (the share of the classes in the most frequent superclass of their group). Three trees on the same found
classes: `Discovery.hierarchy`, Ward on the centroids of the classes in the embeddings, and random merges (the mean of
20 trees).
Cells that are done are not run again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import linkage

from cells import Cell, add_cell, is_done, read_cells
from protocol import DATA_SETS, Case, kept_fit, load
from rpim import Discovery
from rpim.runs.assignments import class_codes

Merges = list[tuple[int, int]]
N_RANDOM = 20

SUPERCLASSES = {
    "cifar100": """
        aquatic_mammals: beaver dolphin otter seal whale
        fish: aquarium_fish flatfish ray shark trout
        flowers: orchid poppy rose sunflower tulip
        food_containers: bottle bowl can cup plate
        fruit_and_vegetables: apple mushroom orange pear sweet_pepper
        household_electrical_devices: clock keyboard lamp telephone television
        household_furniture: bed chair couch table wardrobe
        insects: bee beetle butterfly caterpillar cockroach
        large_carnivores: bear leopard lion tiger wolf
        large_man-made_outdoor_things: bridge castle house road skyscraper
        large_natural_outdoor_scenes: cloud forest mountain plain sea
        large_omnivores_and_herbivores: camel cattle chimpanzee elephant kangaroo
        medium-sized_mammals: fox porcupine possum raccoon skunk
        non-insect_invertebrates: crab lobster snail spider worm
        people: baby boy girl man woman
        reptiles: crocodile dinosaur lizard snake turtle
        small_mammals: hamster mouse rabbit shrew squirrel
        trees: maple_tree oak_tree palm_tree pine_tree willow_tree
        vehicles_1: bicycle bus motorcycle pickup_truck train
        vehicles_2: lawn_mower rocket streetcar tank tractor
    """,
    "clinc150": """
        banking: freeze_account routing pin_change bill_due pay_bill account_blocked interest_rate min_payment
            bill_balance transfer order_checks balance spending_history transactions report_fraud
        credit_cards: replacement_card_duration expiration_date damaged_card improve_credit_score report_lost_card
            card_declined credit_limit_change apr redeem_rewards credit_limit rewards_balance application_status
            credit_score new_card international_fees
        kitchen_and_dining: food_last confirm_reservation how_busy ingredients_list calories nutrition_info recipe
            restaurant_reviews restaurant_reservation meal_suggestion restaurant_suggestion cancel_reservation
            ingredient_substitution cook_time accept_reservations
        home: what_song play_music todo_list_update reminder reminder_update calendar_update order_status
            update_playlist shopping_list calendar next_song order todo_list shopping_list_update smart_home
        auto_and_commute: current_location oil_change_when oil_change_how uber traffic tire_pressure
            schedule_maintenance gas mpg distance directions last_maintenance gas_type tire_change jump_start
        travel: plug_type travel_notification translate flight_status international_visa timezone exchange_rate
            travel_suggestion travel_alert vaccines lost_luggage book_flight book_hotel carry_on car_rental
        utility: weather alarm date find_phone share_location timer make_call calculator definition
            measurement_conversion flip_coin spelling time roll_dice text
        work: pto_request_status next_holiday insurance_change insurance meeting_schedule payday taxes income
            rollover_401k pto_balance pto_request w2 schedule_meeting direct_deposit pto_used
        small_talk: who_made_you meaning_of_life who_do_you_work_for do_you_have_pets what_are_your_hobbies fun_fact
            what_is_your_name where_are_you_from goodbye thank_you greeting tell_joke are_you_a_bot how_old_are_you
            what_can_i_ask_you
        meta: change_speed user_name whisper_mode yes change_volume no change_language repeat change_accent cancel
            sync_device change_user_name change_ai_name reset_settings maybe
    """,
}
"""From the papers of the two data sets; all groups have the same size."""


def superclass_of(data_set: str) -> dict[str, str]:
    """The superclass of each class."""
    found, current = {}, ""
    for word in SUPERCLASSES[data_set].split():
        if word.endswith(":"):
            current = word[:-1]
        else:
            found[word] = current
    return found


def groups_of(merges: Merges, n: int) -> list[list[int]]:
    """The leaves below every node. (2n - 1)"""
    below = [[k] for k in range(n)]
    for a, b in merges:
        below.append(below[a] + below[b])
    return below


def dendrogram_purity(merges: Merges, truth: np.ndarray) -> float:
    """For two random leaves of one class, the expected share of that class in the smallest group of both."""
    n, total, pairs = len(truth), 0.0, 0
    below = groups_of(merges, n)
    for i, (a, b) in enumerate(merges):
        left, right = (Counter(truth[below[node]].tolist()) for node in (a, b))
        for name in left.keys() & right.keys():
            met = left[name] * right[name]
            total += met * (left[name] + right[name]) / len(below[n + i])
            pairs += met
    return total / pairs


def cut_purity(merges: Merges, truth: np.ndarray, n_groups: int) -> float:
    """The share of leaves in the most frequent class of their group."""
    n = len(truth)
    below, alive = groups_of(merges, n), set(range(n))
    for i, (a, b) in enumerate(merges[: n - n_groups]):
        alive = alive - {a, b} | {n + i}
    return sum(Counter(truth[below[node]].tolist()).most_common(1)[0][1] for node in alive) / n


def ward(case: Case, codes: np.ndarray, used: np.ndarray) -> Merges:
    """Ward on the centroids of the found classes."""
    unit = case.X / np.linalg.norm(case.X, axis=1, keepdims=True)
    centroids = np.stack([unit[codes == k].mean(axis=0) for k in used])
    return [(int(a), int(b)) for a, b, _, _ in linkage(centroids, "ward")]


def random_merges(n: int, seed: int) -> Merges:
    """Any two groups after each other."""
    random, alive, merges = np.random.RandomState(seed), list(range(n)), []
    for i in range(n - 1):
        a, b = (alive.pop(random.randint(len(alive))) for _ in range(2))
        merges.append((a, b))
        alive.append(n + i)
    return merges


def measure(discovery: Discovery, case: Case, names: np.ndarray, data_set: str) -> Cell:
    """Both measures of the three trees."""
    groups = superclass_of(data_set)
    of_class = np.array([groups[name] for name in names.tolist()])
    codes = class_codes(discovery.labels, discovery.classes)
    used = np.unique(codes)
    found = [Counter(of_class[case.truth[codes == k]].tolist()).most_common(1)[0][0] for k in used]
    truth, n_groups = np.array(found), len(set(groups.values()))
    trees = {"hierarchy": [discovery.hierarchy().merges], "ward": [ward(case, codes, used)]}
    trees["random"] = [random_merges(len(used), seed) for seed in range(N_RANDOM)]
    cell: Cell = {"classes": len(used)}
    for name, made in trees.items():
        cell[name] = {
            "dendrogram": float(np.mean([dendrogram_purity(merges, truth) for merges in made])),
            "cut": float(np.mean([cut_purity(merges, truth, n_groups) for merges in made])),
        }
    return cell


def table(cells: list[Cell]) -> str:
    """A row for each data set: means over seeds, in percent."""
    lines = ["| data set | seeds | measure | hierarchy | Ward on centroids | random |", "|---|---|---|---|---|---|"]
    for data_set in sorted({cell["data_set"] for cell in cells}):
        rows = [cell for cell in cells if cell["data_set"] == data_set]
        for measured in ("dendrogram", "cut"):
            means = [100 * np.mean([cell[tree][measured] for cell in rows]) for tree in ("hierarchy", "ward", "random")]
            lines.append(f"| {data_set} | {len(rows)} | {measured} | " + " | ".join(f"{m:.1f}" for m in means) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(SUPERCLASSES), default=list(SUPERCLASSES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/hierarchy.jsonl"))
    parser.add_argument("--runs", type=Path, default=Path("build/fits"), help="where the fits are kept")
    chosen = parser.parse_args()
    for data_set, seed in [(data_set, seed) for seed in chosen.seeds for data_set in chosen.sets]:
        key = {"data_set": data_set, "seed": seed, "members": chosen.members}
        if is_done(chosen.output, key):
            continue
        case = load(chosen.data, data_set, seed)
        with np.load(chosen.data / "features" / f"{DATA_SETS[data_set]}.npz", allow_pickle=False) as stored:
            names = stored["label_names"]
        discovery = kept_fit(case, chosen.members, chosen.runs / f"{data_set}-{seed}-{chosen.members}")
        add_cell(chosen.output, {**key, **measure(discovery, case, names, data_set)})
    print(table([cell for cell in read_cells(chosen.output) if cell["seed"] in chosen.seeds]))


if __name__ == "__main__":
    main()
